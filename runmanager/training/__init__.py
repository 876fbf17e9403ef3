"""The built-in job: data, models, optimisers, schedulers, loaders, and the loop that trains."""

"""What a sweep can run: the built-in job, Hydra applications, scripts."""

"""What a sweep shows: the best cell, answers in sentences, crossovers, bottlenecks, and what to do next."""

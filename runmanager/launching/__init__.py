"""Many runs: planning what is to be run, running each in a process of its own, seeing how it ended."""

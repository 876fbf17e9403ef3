"""Findings of a sweep: the best cell, answers in sentences, crossovers, bottlenecks, and what to do next."""

"""The figures of a sweep: which it has, what each shows, and as what they can be had."""

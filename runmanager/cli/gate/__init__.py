"""Exit statuses by conditions: `--fail-if`, and the duel that could answer an open one."""

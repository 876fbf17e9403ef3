"""The benchmark of kept memory against the C library's defaults, each epoch in a new process."""

import pytest

from benchmarks.command_line import Settings
from benchmarks.freed_memory import measure
from benchmarks.interleaving import StoppingRule


@pytest.mark.release
def test_both_variants_are_compared() -> None:
    rows = measure(Settings(StoppingRule(min_rounds=1, max_rounds=1), 0, False, "a command"))
    (compared,) = rows
    assert compared.what.endswith("C library's defaults / freed memory kept")
    assert compared.ours.endswith("s") and compared.other.endswith("s")

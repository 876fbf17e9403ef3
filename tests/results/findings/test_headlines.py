"""The findings of a sweep, in sentences about one cell."""

import msgspec

from runmanager.results.compare.comparison import compare
from runmanager.results.findings.headlines import headlines
from runmanager.results.tables.results_table import result_rows


def test_certainty_is_that_of_the_answered_cell(contents, timed):
    """The best cell has a seed without the metric: the certainty of the others does not apply to it."""
    cells = {(0.1, 1): 9, (0.1, 2): 9, (0.2, 1): 4, (0.2, 2): 4, (0.3, 1): 3, (0.3, 2): 3}
    runs = [({"lr": lr, "seed": seed}, timed([1.0] * count), {}) for (lr, seed), count in cells.items()]
    whole = contents(*runs)
    config, epochs, fields = runs[1]
    without = [msgspec.structs.replace(epoch, val_accuracy=None) for epoch in epochs]
    lacking = contents(runs[0], (config, without, fields), *runs[2:])
    for sweep, is_said in ((whole, True), (lacking, False)):
        text = headlines(sweep, None, results=result_rows(sweep, None), comparison=compare(sweep, None))
        assert any("with lr=0.1" in line for line in text)
        assert any("Next is" in line for line in text) is is_said

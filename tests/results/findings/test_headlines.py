"""The findings of a sweep, in sentences about one cell."""

import msgspec

from runmanager.results.compare.comparison import compare
from runmanager.results.report.markdown_summary import headlines
from runmanager.results.tables.results_table import result_rows


def test_certainty_is_that_of_the_answered_cell(contents, timed):
    """A cell with a seed without the metric is not answered, and named; the certainty is that of the others."""
    cells = {(0.1, 1): 9, (0.1, 2): 9, (0.2, 1): 4, (0.2, 2): 4, (0.3, 1): 3, (0.3, 2): 3}
    runs = [({"lr": lr, "seed": seed}, timed([1.0] * count), {}) for (lr, seed), count in cells.items()]
    whole = contents(*runs)
    config, epochs, fields = runs[1]
    without = [msgspec.structs.replace(epoch, val_accuracy=None) for epoch in epochs]
    lacking = contents(runs[0], (config, without, fields), *runs[2:])
    left_out = " 1 other cell is left out, as not every finished run there has one."
    for sweep, best, then, end in ((whole, 0.1, 0.2, ""), (lacking, 0.2, 0.3, left_out)):
        text = headlines(sweep, None, results=result_rows(sweep, None), comparison=compare(sweep, None))
        assert any(line.endswith(f"over 2 seeds with lr={best}.{end}") for line in text), text
        assert any(line.startswith(f"Next is lr={then} with ") for line in text)

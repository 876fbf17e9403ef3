"""The figure of throughput by run."""

from .drawn_figures import figures_in, finished, texts_of


def test_each_run_has_a_dot_and_the_seeds_of_a_cell_share_a_row(grid):
    drawn = grid["throughput"]
    assert drawn.description == (
        "The fastest is batch_size=1000, device=cuda, at 4,950 samples per second, the mean of its seeds; the slowest "
        "of 4 is batch_size=100, device=cuda, at 248."
    )
    rows = [text for text in texts_of(drawn) if text.startswith("batch_size")]
    assert len(rows) == 4
    dots = [line for line in drawn.draw().axes[0].lines if line.get_label() in ("cpu", "cuda")]
    assert sorted(len(line.get_xdata()) for line in dots) == [6, 6]
    assert len({line.get_marker() for line in dots}) == 2  # colour is not the only difference


def test_cells_are_sorted_by_mean_and_not_by_their_best_seed(contents, timed):
    seconds = {"lucky": (0.5, 8.0), "steady": (1.0, 1.0)}
    cells = [({"lr": lr, "seed": seed}, each) for lr, of_lr in seconds.items() for seed, each in enumerate(of_lr)]
    drawn = figures_in(finished(contents, timed, cells))["throughput"]
    assert drawn.description == (
        "The fastest is lr=lucky, at 1,060 samples per second, the mean of its seeds; the slowest of 2 is lr=steady, "
        "at 1,000."
    )
    seconds["lucky"] = (0.55, 8.0)
    cells = [({"lr": lr, "seed": seed}, each) for lr, of_lr in seconds.items() for seed, each in enumerate(of_lr)]
    drawn = figures_in(finished(contents, timed, cells))["throughput"]
    assert drawn.description.startswith("The fastest is lr=steady, at 1,000 samples per second, the mean of its seeds;")
    assert [text for text in texts_of(drawn) if text.startswith("lr=")] == ["lr=steady", "lr=lucky"]

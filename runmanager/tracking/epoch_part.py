"""What a checkpoint has of the values so far: of an epoch that it lies within, and of the run. Loads no torch."""

import msgspec


class LossState(msgspec.Struct, frozen=True):
    """The state of a `LossBuffer`: the sum of the emptied losses, and the buffered ones with their samples."""

    total: float | None
    samples: list[int]
    losses: list[float]
    num_emptied: int
    log_every: int
    logged: list[float]


class MeterState(msgspec.Struct, frozen=True):
    """The state of an `EpochMeter`: losses, and how many of the predictions that count were correct.

    `num_uncounted` steps had no known number of samples; `uncompared` says why predictions could not be compared.
    """

    losses: LossState
    loss_samples: int
    prediction_samples: int
    num_correct: int
    num_counted: int
    num_uncounted: int = 0
    uncompared: str = ""


class MeanState(msgspec.Struct, frozen=True):
    """The state of a metric's mean: the method that it comes from, its values, and their samples."""

    call: str
    values: LossState
    samples: int


class SeriesState(msgspec.Struct, frozen=True):
    """The state of the values that were logged by steps under one name; `steps` and `values` are not shown yet."""

    reduce: str
    count: int
    last: float
    total: float
    least: float
    largest: float
    steps: list[int]
    values: list[float]


class LoggedState(msgspec.Struct, frozen=True):
    """What the program has logged of its whole run: the summary, and the last step of each name."""

    summary: dict[str, float | SeriesState] = {}
    steps: dict[str, int] = {}
    media_steps: dict[str, int] = {}


class EpochPart(msgspec.Struct, frozen=True):
    """What the steps of an unfinished epoch have given so far; `seconds` by phase, `num_steps` in this epoch alone.

    `metrics` are numbers logged last, or means, in order of first appearance; `series` are values logged by steps.
    """

    epoch: int
    num_steps: int
    seconds: dict[str, float]
    wall_seconds: float
    trained: MeterState
    evaluated: MeterState
    metrics: dict[str, float | MeanState]
    units: dict[str, int]
    run_seconds: float = 0.0
    series: dict[str, SeriesState] = {}

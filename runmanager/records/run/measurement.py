"""What is measured of a run and of its epochs: each thing is declared once, here.

From `MEASUREMENTS` follow the columns of tables, their order, formats and headings, the metrics that runs are compared
by and their directions, the scalars of TensorBoard, and what exports and details of a run have. A new measurement is a
field of `EpochRecord` or `RunRecord`, a row here, and the code that fills the field.
"""

from collections.abc import Iterable
from enum import Enum, StrEnum
from typing import Literal, NamedTuple

from runmanager.records.run.metric_names import MAX, MIN
from runmanager.records.run.run_record import PHASES, EpochRecord

Effect = Literal["speedup", "ratio", "difference"]


class Unit(Enum):
    """What a number counts, which decides how it is shown, and the order in which people are told of it."""

    RATE = 1
    SECONDS = 2
    FRACTION = 3
    LOSS = 4
    COUNT = 5
    BYTES = 6
    ENERGY = 7
    NONE = 8


class Taken(StrEnum):
    """Where the value of a whole run is from."""

    LAST_EPOCH = "the last epoch that has it"
    MEDIAN = "the median over the measured epochs"
    RECORD = "the run's record"
    FOUND = "found where the runs are read"


class Measurement(NamedTuple):
    """A measurement, by the name of its field and of its column.

    `better` is `min` or `max` where runs can be compared by it. `label` is what it is called in sentences, by default
    its name, and `heading` above a column, by default the label, or the words of the name. `tag` is that of its scalar
    in TensorBoard. `spare` tells the columns that people are shown: 0 is always, 1 the first to be left out where the
    width is short, and so on; None is in files alone. One that `is_of_some` has a column only where a run has it.
    """

    name: str
    unit: Unit
    taken: Taken
    better: str | None = None
    label: str = ""
    heading: str = ""
    tag: str = ""
    spare: int | None = None
    is_of_some: bool = False

    @property
    def is_of_epochs(self) -> bool:
        """Whether each epoch has a value too."""
        return hasattr(EpochRecord, self.name)

    @property
    def effect(self) -> Effect:
        """The effect by which two runs are compared."""
        if self.unit in (Unit.RATE, Unit.SECONDS):
            return "speedup"
        return "ratio" if self.unit is Unit.BYTES else "difference"


_RATE, _SECONDS, _FRACTION, _LOSS, _COUNT, _BYTES, _ENERGY, _NONE = Unit
_LAST, _MEDIAN, _RECORD, _FOUND = Taken

MEASUREMENTS = (
    Measurement("epochs", _COUNT, _FOUND, spare=6),
    Measurement("loss", _LOSS, _LAST, MIN, tag="train/loss", spare=3),
    Measurement("accuracy", _FRACTION, _LAST, MAX, tag="train/accuracy", spare=4),
    Measurement("val_loss", _LOSS, _LAST, MIN, "validation loss", tag="val/loss", spare=2),
    Measurement("val_accuracy", _FRACTION, _LAST, MAX, "validation accuracy", tag="val/accuracy", spare=0),
    Measurement("epoch_seconds", _SECONDS, _MEDIAN, MIN, "seconds per epoch", tag="time/epoch_seconds", spare=0),
    Measurement("epoch_seconds_iqr", _SECONDS, _FOUND),
    Measurement("wall_seconds", _SECONDS, _MEDIAN, MIN),
    Measurement("run_seconds", _SECONDS, _RECORD, MIN, "seconds of the run"),
    Measurement(
        "samples_per_second", _RATE, _MEDIAN, MAX, "samples per second", tag="throughput/samples_per_second", spare=0
    ),
    *(Measurement(f"{phase}_seconds", _SECONDS, _MEDIAN, tag=f"time/{phase}_seconds") for phase in PHASES),
    Measurement("peak_memory_bytes", _BYTES, _RECORD, MIN, "peak memory", spare=1),
    Measurement("num_parameters", _COUNT, _RECORD, heading="parameters"),
    Measurement("device_name", _NONE, _FOUND, heading="device used"),
    Measurement("contended", _NONE, _FOUND, spare=5),
    Measurement("started_at", _NONE, _RECORD),
    Measurement("run_dir", _NONE, _FOUND),
    Measurement("overall_samples_per_second", _RATE, _FOUND, MAX, "overall samples per second"),
    Measurement("energy_joules", _ENERGY, _FOUND, is_of_some=True),
    Measurement("samples_per_joule", _ENERGY, _FOUND, is_of_some=True),
    Measurement("average_power_watts", _ENERGY, _FOUND, is_of_some=True),
    Measurement("gpu_utilization", _FRACTION, _FOUND, heading="GPU utilization", is_of_some=True),
    Measurement("throttled_share", _FRACTION, _FOUND, is_of_some=True),
)
"""In the order of results.csv."""


def named(measured: Iterable[Measurement]) -> tuple[str, ...]:
    """Return the names of measurements."""
    return tuple(each.name for each in measured)


def by_unit(measured: Iterable[Measurement]) -> list[Measurement]:
    """Return measurements in the order of their units."""
    return sorted(measured, key=lambda each: each.unit.value)


METRICS = named(each for each in MEASUREMENTS if each.taken is Taken.LAST_EPOCH)
"""The metrics of which each epoch's record has a field."""

OUTCOMES = named(by_unit(each for each in reversed(MEASUREMENTS) if each.taken is Taken.LAST_EPOCH))
"""The metrics of the best run where none is requested: the first of these that was measured."""

TAGS = {each.name: each.tag for each in MEASUREMENTS if each.tag}
"""The tags of the scalars in TensorBoard, by the names of the fields of an epoch."""

COMPARED = tuple(each for each in by_unit(MEASUREMENTS) if each.better is not None)
"""What any run can be compared by, in the order in which people are told of it."""

LOSSES = named(each for each in MEASUREMENTS if each.unit is Unit.LOSS)
"""The metrics whose values are those of the loss function."""

RUN_FACTS = tuple(
    each
    for each in by_unit(MEASUREMENTS)
    if each.taken is Taken.RECORD and each.unit is not Unit.NONE and not each.is_of_epochs
)
"""The numbers that a run's record alone has."""

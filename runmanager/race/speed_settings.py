"""The settings of the built-in job that change nothing but speed, and which of their values are worth a race."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runmanager.race.heat import Factor
from runmanager.text import format_value
from runmanager.tracking.options import CAPTURING_DEVICES, STREAMING_DEVICES
from runmanager.training.options.groups import DataLoaderOptions
from runmanager.training.options.job import AUTO, OutOfMemory, Precision, TrainingOptions, unused_settings
from runmanager.validation import GroupOptions

THREADS = "hydra.launcher.threads"
"""The setting of the launcher that is raced too: threads of a run."""

PRECISION = "precision"
"""What `--allow` may name: settings that change results."""

RACED = (
    *("loader", "num_workers", "loader.pin_memory", "loader.prefetch_factor", "loader.prefetch_to_device"),
    *("loader.persistent_workers", "channels_last", "micro_batch", "graphs", "compile", "optimizer.fused", PRECISION),
    THREADS,
)
"""Settings that may have several values in a race."""

_COMPILE_FROM = 300.0  # seconds of a race: compiling takes a minute
_LEAST_PIECE = 16
_PIECES = (4, 16)  # a batch is also raced in as many pieces
_DATA = ("data", "transfer")
_COMPUTE = ("compute", "training")
_ONLY_GIVEN = {"loader.prefetch_factor": _DATA, "loader.persistent_workers": _DATA, "optimizer.fused": _COMPUTE}


@dataclass(frozen=True)
class Conditions:
    """What is known before a race: the machine's `cores`, the `seconds`, and what the user says.

    `device` is the type of the device, and `splits` whether batches can be computed in pieces. `threads` are those that
    a run has by itself, where they are not all cores. `automatic` has what each setting of `auto` becomes, as it is
    typed: to race that value too would race one job against itself. `allowed` settings may be raced although they
    change results. `fixed` settings have the one value that was given; `lists` have the values that are to be raced.
    """

    device: str
    cores: int
    seconds: float
    splits: bool = True
    threads: int | None = None
    automatic: Mapping[str, str] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def values(self, name: str, default: Sequence[str]) -> Sequence[str]:
        """The values of a setting that are raced: those that were given, none for a fixed one, else `default`."""
        return self.lists.get(name, () if name in self.fixed else default)

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"


_Values = Sequence[Mapping[str, str]] | str
"""The alternatives of a factor, or why it is not raced."""


def speed_factors(
    config: TrainingOptions, threads: int | None, known: Conditions
) -> tuple[list[Factor], dict[str, str]]:
    """Return the factors to race against a cell with `threads`, and why the others are not raced, by their names."""
    factors, reasons = [], {}
    for name, (find, phases) in _FACTORS.items():
        values = find(config, threads, known)
        if isinstance(values, str):
            reasons[name] = values
            continue
        now = {key: setting_now(config, threads, key) for each in values for key in each}
        others = _different(values, now, known)
        if others:
            factors.append(Factor(name, others, phases if _phases_are_apart(config, known) else ()))
        elif name not in _ONLY_GIVEN:
            reasons[name] = "there is no other value for it here" if name not in known.fixed else "its value was given"
    return factors, reasons


def _different(
    values: Sequence[Mapping[str, str]], now: Mapping[str, str], known: Conditions
) -> list[Mapping[str, str]]:
    """Those values that compute in another way than `now`, and than one another."""

    def what_it_is(settings: Mapping[str, str]) -> dict[str, str]:
        full = {**now, **settings}
        return {key: known.automatic.get(key, value) if value == AUTO else value for key, value in full.items()}

    seen, found = [what_it_is({})], []
    for each in values:
        if (what := what_it_is(each)) not in seen:
            seen.append(what)
            found.append(each)
    return found


def _phases_are_apart(config: TrainingOptions, known: Conditions) -> bool:
    """Whether the time of a phase limits what can be gained there: not while workers compute on the same cores."""
    return config.num_workers == 0 or not known.on_cpu


def setting_now(config: TrainingOptions, threads: int | None, name: str) -> str:
    """Return the value that a setting has, as it is typed."""
    if name == THREADS:
        return format_value(threads)
    if name == "loader":
        return str(getattr(config.loader, "name", ""))
    value: object = config
    for part in name.split("."):
        value = getattr(value, part, None)
    return format_value(value)


def _loader(config: TrainingOptions, threads: int | None, known: Conditions) -> _Values:
    """The loaders, and the numbers of workers of the one that has them."""
    kind = setting_now(config, threads, "loader")
    loaders = known.values("loader", ("dataloader", "resident") if _may_be_resident(config, known) else ("dataloader",))
    counts = known.values("num_workers", _worker_counts(known.cores))
    now = format_value(config.num_workers)
    found = []
    for loader in loaders or (kind,):
        if loader == "resident":
            found += [{"loader": loader, "num_workers": "0"}] if "num_workers" not in known.fixed or now == "0" else []
        else:
            found += [{"loader": loader, "num_workers": count} for count in counts or (now,)]
    return found


def _may_be_resident(config: TrainingOptions, known: Conditions) -> bool:
    """Whether samples may be read once: a custom dataset may draw random numbers for each."""
    of_loader = {name for name in (*known.fixed, *known.lists) if name.startswith("loader.")} - {"loader.shuffle"}
    return isinstance(config.dataset, GroupOptions) and not of_loader


def _worker_counts(cores: int) -> list[str]:
    counts = {0, cores, *(2**power for power in range(cores.bit_length()) if 2**power <= cores)}
    return [str(each) for each in sorted(counts)]


def _pinning(config: TrainingOptions, threads: int | None, known: Conditions) -> _Values:
    if known.on_cpu:
        return "nothing is copied to a device"
    if not isinstance(config.loader, DataLoaderOptions):
        return f"with `loader={setting_now(config, threads, 'loader')}` no batch is copied"
    pinned = [{"loader.pin_memory": each} for each in known.values("loader.pin_memory", ("null", "false"))]
    if known.device in STREAMING_DEVICES:
        ahead = known.values("loader.prefetch_to_device", ("false", "true"))
        pinned += [{"loader.prefetch_to_device": each, "loader.pin_memory": "null"} for each in ahead]
    return pinned


def _channels_last(config: TrainingOptions, threads: int | None, known: Conditions) -> _Values:
    trial = unused_settings(replace(config, channels_last=True)).get("channels_last")
    if trial is not None:
        return "its inputs have no channels"
    return [{"channels_last": each} for each in known.values("channels_last", ("false", "true"))]


def _micro_batch(config: TrainingOptions, threads: int | None, known: Conditions) -> _Values:
    given = known.lists.get("micro_batch")
    if given is None and not known.splits:
        return "the model or the loss needs whole batches, or the model draws random numbers for each"
    if given is None and not isinstance(config.model, GroupOptions):
        return "a custom model may compare the samples of a batch; `micro_batch=null,auto` races it"
    if given is None and not known.on_cpu:
        return "on an accelerator pieces save memory and no time"
    sizes = [str(config.batch_size // pieces) for pieces in _PIECES if config.batch_size // pieces >= _LEAST_PIECE]
    return [{"micro_batch": each} for each in known.values("micro_batch", ("null", AUTO, *sizes))]


def _threads(config: TrainingOptions, threads: int | None, known: Conditions) -> _Values:
    given = known.lists.get(THREADS)
    if given is None and not known.on_cpu:
        return "the steps run on an accelerator"
    if given is None and known.cores == 1:
        return "there is one core"
    counts = {1, known.cores // 2, known.cores} - {0}
    if threads is None and THREADS not in known.fixed and given is None:
        counts -= {known.threads or known.cores}  # what a run has by itself
    return [{THREADS: each} for each in known.values(THREADS, [str(each) for each in sorted(counts)])]


def _graphs(config: TrainingOptions, threads: int | None, known: Conditions) -> _Values:
    if known.device not in CAPTURING_DEVICES:
        return f"only {', '.join(CAPTURING_DEVICES)} captures steps"
    if config.on_oom == OutOfMemory.HALVE:
        return "`on_oom=halve` may change a captured step"
    if known.lists.get("graphs") is None and not isinstance(config.model, GroupOptions):
        return "a custom model may decide in Python in each step; `graphs=false,true` races it"
    # A captured step cannot change, as `auto` may.
    whole = {"micro_batch": "null"} if config.micro_batch == AUTO and "micro_batch" not in known.fixed else {}
    values = known.values("graphs", ("false", "true"))
    return [{"graphs": each, **(whole if each == "true" else {})} for each in values]


def _compile(config: TrainingOptions, threads: int | None, known: Conditions) -> _Values:
    if known.lists.get("compile") is None and "compile" not in known.fixed and known.seconds < _COMPILE_FROM:
        return f"it is raced from `--seconds {_COMPILE_FROM:g}` on, as compiling takes long"
    return [{"compile": each} for each in known.values("compile", ("false", "true"))]


def _precision(config: TrainingOptions, threads: int | None, known: Conditions) -> _Values:
    if PRECISION in known.lists:
        return [{PRECISION: each} for each in known.lists[PRECISION]]
    if PRECISION not in known.allowed:
        return "it changes results; `--allow precision` races it"
    cast = [Precision.BF16] if known.on_cpu else [Precision.TF32, Precision.BF16, Precision.FP16]
    return [{PRECISION: str(each)} for each in known.values(PRECISION, [Precision.FP32, *cast])]


def _of_list(name: str) -> "Callable[[TrainingOptions, int | None, Conditions], _Values]":
    """A setting that is raced only where its values are given."""
    return lambda config, threads, known: [{name: each} for each in known.lists.get(name, ())]


_FACTORS: dict[str, tuple[Callable[[TrainingOptions, int | None, Conditions], _Values], tuple[str, ...]]] = {
    "loader": (_loader, _DATA),
    "channels_last": (_channels_last, _COMPUTE),
    "micro_batch": (_micro_batch, _COMPUTE),
    "threads": (_threads, ()),
    "pinning": (_pinning, _DATA),
    "graphs": (_graphs, ()),
    "compile": (_compile, _COMPUTE),
    "precision": (_precision, _COMPUTE),
    **{name: (_of_list(name), phases) for name, phases in _ONLY_GIVEN.items()},
}

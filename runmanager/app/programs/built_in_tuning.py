"""`runmanager tune SETTINGS`: the settings of the built-in job that change nothing but speed, raced."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig
from rich.console import Console

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.compose_cells import prepare_cells
from runmanager.app.compose.override_grid import parse_overrides
from runmanager.app.compose.saved_preset import check_preset_name, is_of_package, preset_file, preset_text, save_preset
from runmanager.app.compose.schema import Config
from runmanager.app.display.output import make_console
from runmanager.app.driver.preflight import check_cells, require_output_root
from runmanager.errors import ConfigurationError, SweepError, UsageError
from runmanager.launching.hydra_internals import hydra_words
from runmanager.launching.launcher import CellLauncher, Trait
from runmanager.race.answer import Answer, show_answer, write_tuning
from runmanager.race.built_in_track import BuiltInTrack, Entry, Seen
from runmanager.race.heat import Factor, Settings, repetition_faults
from runmanager.race.search import Search, Tuning
from runmanager.race.speed_settings import PRECISION, RACED, THREADS, Conditions, setting_now, speed_factors
from runmanager.records.files.paths import dated_name
from runmanager.records.host.process import usable_cores
from runmanager.text import format_value, printable_line, shell_join
from runmanager.validation import fault, suggestion

_STORAGE = ("name", "output_root")
_NOT_OF_RUNS = ("hydra.mode=", "hydra.sweeper.", f"{THREADS}=")


@dataclass(frozen=True)
class TuneRequest:
    """What the command asks for, as `hydra.sweeper.tune` has it.

    `began` is when the command began, by the monotonic clock; `allow` names settings that change results and may be
    raced all the same; `threads` are the given numbers of threads; `save` is the preset's name, None for a free one.
    `overwrites`: whether a preset of that name may be replaced.
    """

    seconds: float = 60.0
    began: float = 0.0
    allow: Sequence[str] = ()
    threads: Sequence[int] = ()
    save: str | None = None
    overwrites: bool = False

    def __post_init__(self) -> None:
        faults = []
        if not self.seconds > 0:
            faults.append(fault("--seconds", "be above 0", self.seconds))
        faults += [
            fault("--allow", "name a setting that changes results", name, suggestion(name, [PRECISION]))
            for name in self.allow
            if name != PRECISION
        ]
        if any(each < 1 for each in self.threads):
            faults.append(fault("threads", "be at least 1", min(self.threads)))
        faults += repetition_faults("threads", list(map(str, self.threads)))
        if self.save is not None:
            faults += check_preset_name(self.save, overwrites=self.overwrites)
        if faults:
            raise ConfigurationError(faults)


def tune_built_in(
    loader: CellLoader, master: DictConfig, words: Sequence[str], launcher: CellLauncher, asked: Mapping[str, Any]
) -> None:
    """Race the settings of the command `words`, and print and write what was found.

    Raises `ConfigurationError` and `UsageError` before anything runs, `SweepError` where the settings fail before the
    race, and `SystemExit` after an interrupt and where they fail in it.
    """
    request = TuneRequest(**asked)
    if Trait.HERE not in launcher.traits:
        way_out = "contenders take turns on one machine: use `hydra/launcher=local`"
        raise ConfigurationError([fault("hydra/launcher", "be local for a race", "another one", way_out)])
    console = make_console()
    job = _Job(loader, master, _Given.read(parse_overrides(loader, words), request, launcher))
    config = job.config
    if request.save is not None:
        preset_text(request.save, *_separated(job.words_with({})))  # raises for what no preset can hold
    folder = _new_folder(config)
    check_cells(launcher, [config], given=frozenset(job.given.fixed), needs_all=True)
    track = BuiltInTrack(launcher, job.enter, seconds=request.seconds)
    seen = track.try_alone({})
    if seen.failure is not None:
        raise SweepError(f"The settings must run to be raced, got {seen.failure.reason}: {seen.failure.message}")
    job.known = job.conditions(request, seen)
    search = Search(
        job,
        track,
        seconds=request.seconds,
        began=request.began or time.monotonic(),
        shares=seen.shares,
        say=lambda line: console.print(printable_line(line), soft_wrap=not console.is_terminal),
    )
    _finish(job, request, search.run(), folder, console)


def _new_folder(config: Config) -> Path:
    """Return the folder of the result. Raises `UsageError` where it cannot be written, or has a result already."""
    root = Path(config.output_root)
    folder = root / (config.name or dated_name("tune"))
    if folder.exists():
        raise UsageError(fault("name", "be a new name for a race", f"{config.name}, and {folder} exists"))
    with require_output_root(root):
        root.mkdir(parents=True, exist_ok=True)
    return folder


def _finish(job: "_Job", request: TuneRequest, found: Tuning, folder: Path, console: Console) -> None:
    """Write the result and the preset, and print the answer last."""
    words = job.words_with(found.chosen)
    answer = Answer(found, shell_join(["runmanager", "run", *words]), device=job.known.device, given=job.shown_given())
    with require_output_root(Path(job.config.output_root)):
        write_tuning(folder, answer)
    show_answer(answer, console)
    if answer.is_shown or (answer.is_better and request.save is not None):
        try:
            save_preset(request.save or _free_name(), *_separated(words), overwrites=request.overwrites)
        except ConfigurationError as error:  # of settings that no preset can hold, where none was asked for
            console.print(printable_line(f"No preset is written: {error.faults[0]}"), soft_wrap=True)
    if answer.exit_status:
        raise SystemExit(answer.exit_status)


def _separated(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of the cells, and those of the launcher, which have a place of their own in a preset."""
    of_hydra = [word for word in words if word.startswith("hydra")]
    return [word for word in words if word not in of_hydra], of_hydra


def _free_name() -> str:
    """The first of tuned, tuned-2, tuned-3, … that no preset has."""
    name, number = "tuned", 1
    while preset_file(name).exists() or is_of_package(name):
        number += 1
        name = f"tuned-{number}"
    return name


@dataclass(frozen=True)
class _Given:
    """The words of the command by the names of their settings: a single word each, and the `lists` to race."""

    single: Mapping[str, str]
    lists: Mapping[str, Sequence[str]]
    threads: int | None = None

    @classmethod
    def read(cls, overrides: Sequence[Override], request: TuneRequest, launcher: CellLauncher) -> "_Given":
        """Raise `ConfigurationError` for several values of a setting that is not raced, and for repeated values."""
        single: dict[str, str] = {}
        lists: dict[str, list[str]] = {}
        faults = []
        for each in overrides:
            name = each.key_or_group
            if not each.is_sweep_override():
                single[name] = str(each.input_line)
                continue
            values = list(each.sweep_string_iterator())
            if name not in RACED:
                way_out = "a race is between settings that change nothing but speed"
                faults.append(fault(name, "have one value in a race", f"{len(values)}", way_out))
            faults += repetition_faults(name, values)
            single[name], lists[name] = f"{name}={values[0]}", values
        if faults:
            raise ConfigurationError(faults)
        threads = launcher.options.threads
        if request.threads:
            threads = request.threads[0]
            if len(request.threads) > 1:
                lists[THREADS] = [str(number) for number in request.threads]
        return cls(single, lists, threads)

    @property
    def fixed(self) -> frozenset[str]:
        """The settings with one value."""
        return frozenset(self.single) - set(self.lists) | (
            {THREADS} if self.threads and THREADS not in self.lists else set()
        )


@dataclass
class _Job:
    """The built-in job with the settings of the command: makes the cells of a race, and says what is raced."""

    loader: CellLoader
    master: DictConfig
    given: _Given
    known: Conditions = field(default_factory=lambda: Conditions(device="cpu", cores=1, seconds=0.0))

    def __post_init__(self) -> None:
        self.config = self._composed({})

    def conditions(self, request: TuneRequest, seen: Seen) -> Conditions:
        return Conditions(
            device=seen.device,
            cores=usable_cores(),
            seconds=request.seconds,
            splits=seen.splits,
            automatic={name: format_value(value) for name, value in seen.chosen.items()},
            threads=int(given) if (given := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() else None,
            allowed=frozenset(request.allow),
            fixed=self.given.fixed,
            lists=self.given.lists,
        )

    def factors(self, chosen: Settings) -> tuple[Sequence[Factor], Mapping[str, str]]:
        """What can be raced where `chosen` is set; see `Space`."""
        entry = self.enter(chosen)
        # By these, too, `auto` is resolved.
        is_another = any(getattr(entry.options, name) != getattr(self.config, name) for name in ("compile", PRECISION))
        known = replace(self.known, automatic={}) if is_another else self.known
        return speed_factors(entry.options, entry.threads, known)

    def changes(self, chosen: Settings) -> dict[str, str]:
        """See `Space`."""
        return {
            name: value for name, value in chosen.items() if value != setting_now(self.config, self.given.threads, name)
        }

    def enter(self, settings: Settings) -> Entry:
        """Compose the cell of these settings. Raises `ConfigurationError` for what cannot be combined."""
        of_cell = {name: value for name, value in settings.items() if name != THREADS}
        threads = settings.get(THREADS, self.given.threads)
        return Entry(self._composed(of_cell), None if threads is None else int(threads))

    def _composed(self, settings: Settings) -> Config:
        words = dict(self.given.single) | {name: f"{name}={value}" for name, value in settings.items()}
        (config,) = prepare_cells(self.loader, self.master, list(words.values())).configs
        return replace(config, tensorboard=replace(config.tensorboard, enabled=False))

    def words_with(self, chosen: Settings) -> list[str]:
        """The words of a run with these changes."""
        words = {name: word for name, word in self.given.single.items() if name not in _STORAGE}
        words |= {name: f"{name}={value}" for name, value in chosen.items()}
        if self.given.threads is not None:
            words.setdefault(THREADS, f"{THREADS}={self.given.threads}")
        of_hydra = [word for word in hydra_words(self.master) if not word.startswith(_NOT_OF_RUNS)]
        return [*words.values(), *of_hydra]

    def shown_given(self) -> str:
        return " ".join(word for name, word in self.given.single.items() if name not in _STORAGE) or "the defaults"

"""Words of commands, output of programs and addresses of pages as targets: text of at most a few lines."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.compose.override_grid import read_override_grid
from runmanager.app.compose.saved_preset import preset_text
from runmanager.app.compose.schema import conf_folder
from runmanager.app.programs.cell_metrics import logged_numbers
from runmanager.app.programs.script.arguments.setting_words import form_faults, make_arguments, parse_settings
from runmanager.app.programs.script.output.printed_metrics import StreamScanner
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.app.request.sweep_request import SweepRequest
from runmanager.app.ui.pages import Pages
from runmanager.app.ui.sweep_board import SweepBoard
from runmanager.app.ui.web_server import Access, WebApp
from runmanager.launching.hydra_internals import version_base
from runmanager.results.gate.fail_if import parse_condition as parse_gate
from runmanager.results.table_model.columns import Row
from runmanager.results.tables.query import TableQuery
from runmanager.results.tables.where_condition import parse_condition

from .target import Read, Target

__all__ = ["TARGETS"]

_MANY = 1000  # cells: more are only counted
_COLUMNS = {name: name for name in ("lr", "device", "model.name", "val/loss", "seed", "note")}
_ROW = Row({"lr": 0.1, "device": "cpu", "model.name": None, "val/loss": float("nan"), "seed": 10**30, "note": [1, "a"]})
_SCALARS = (
    r"loss=loss[ =:]+([-+.\deE]+|nan|inf)",
    r"acc=(\d+)/(\d+)",
    r"last=(\S+)$",
    r"either=a(\d)?|b(\d*)",
    r"f1=\bf1\b\W*([0-9.]*)",
)


def _of_text(use: Callable[[str], object]) -> Callable[[Path], Read]:
    """The reader of a text, as the words of a command are given: what is not UTF-8 as lone surrogates."""
    return lambda folder: lambda data: use(data.decode(errors="surrogateescape"))


def _where(text: str) -> None:
    condition = parse_condition(text)
    condition.over(_COLUMNS, known=list(_COLUMNS))(_ROW)


def _query(text: str) -> None:
    where, sort, columns, pivot, *_ = (*text.split("\n"), *([""] * 4))
    TableQuery.parse(where=where or None, sort=sort or None, columns=columns or None, pivot=pivot or None)


def _overrides(folder: Path) -> Read:
    """Words of a sweep of the built-in job: an axis each, as many as there are lines."""
    with ExitStack() as stack:
        GlobalHydra.instance().clear()
        stack.enter_context(initialize_config_dir(str(conf_folder()), **version_base()))
        loader = CellLoader(GlobalHydra.instance().config_loader())  # type: ignore[arg-type]

    def read(data: bytes) -> None:
        words = data.decode(errors="surrogateescape").split("\n")
        zip_ = words.pop().split(",") if words[-1].startswith("zip") else None
        grid = read_override_grid(loader, words, GridRules.read(SweepRequest(zip=zip_), str))
        if grid.num_cells <= _MANY:
            grid.combinations()
        preset_text("new", words, [])

    return read


def _settings(text: str) -> None:
    """Words of a sweep of a script."""
    *words, form = text.split("\n")
    grid = parse_settings(words)
    if len(grid.sets) < 5 and all(len(each.values) < 20 for each in grid.sets):
        for cell in grid.combinations()[:5]:
            make_arguments(cell, form=None if form_faults(form) else form)


def _scalar_option(text: str) -> None:
    parse_scalars(text.split("\n"))


def _output(folder: Path) -> Read:
    """What a script prints, in pieces as long as the first byte says."""
    patterns = parse_scalars(_SCALARS)
    log = folder / "run.log"

    def read(data: bytes) -> None:
        scanner = StreamScanner(patterns, when_found=str, when_odd=lambda name, text: None)
        size = (data[0] if data else 0) + 1
        for at in range(1, len(data), size):
            scanner.feed(data[at : at + size])
        scanner.close()
        log.write_bytes(data)
        logged_numbers(log, {})

    return read


def _address(folder: Path) -> Read:
    """A request of `runmanager ui`: method, path, query, host and cookie, a line each."""
    broken = folder / "outputs" / "broken"
    broken.mkdir(parents=True)
    (broken / "sweep.json").write_text("{")
    access = Access("127.0.0.1", 8000)
    app = WebApp(Pages(SweepBoard(folder / "outputs")), access)

    def read(data: bytes) -> None:
        method, path, query, host, cookie, *_ = (*data.decode("latin-1").split("\n"), *([""] * 5))
        query = query.replace("TOKEN", access.token)
        environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, "HTTP_HOST": host}
        environ |= {"HTTP_COOKIE": cookie.replace("TOKEN", access.token), "REQUEST_URI": f"{path}?{query}"}
        environ |= {"SERVER_NAME": "127.0.0.1", "SERVER_PORT": "8000", "SERVER_PROTOCOL": "HTTP/1.1"}
        answered: list[str] = []

        def start(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
            answered.append(status)
            for name, value in headers:
                f"{name}: {value}".encode("latin-1")

        body: Iterable[bytes] = app({**environ, "wsgi.url_scheme": "http"}, start)  # type: ignore[arg-type]
        text = b"".join(body)
        assert answered and not answered[0].startswith("5"), (answered, text[:200])

    return read


_GOOD = b"127.0.0.1:8000\nrunmanager-8000=TOKEN"

TARGETS = {
    "where": Target(
        "conditions (`--where`, `--exclude`)",
        _of_text(_where),
        lambda folder: [
            b"device==cuda and lr<0.1",
            b"0.001 < lr < 0.1 or not device in [cpu, 'cuda:1']",
            b"`val/loss` > -1e-3 and seed != 0xFF and note == null",
            b"lr == 0x" + b"f" * 5000,
            b"model.name not in (null, 'a') and (val/loss == 1 or seed == true)",
        ],
        share=2,
    ),
    "query": Target(
        "what a table shows (`--sort`, `--columns`, `--pivot`)",
        _of_text(_query),
        lambda folder: [b"lr<1\nlr\nlr,device\nlr:device:loss", b"\n\n`a,b`,c\na:b"],
        share=0.5,
    ),
    "overrides": Target(
        "grids and ranges of the built-in job",
        _overrides,
        lambda folder: [
            b"lr=0.1,0.01\nseed=range(0,5)\nzip lr,seed",
            b"lr=choice(1,2)\nseed=range(0.1,0.4,0.1)\n+a={b:[1,2],c:'x'}\n~model\nmodel@x=cnn",
            b"lr=interval(0,1)\nlr=glob(*)\nlr=sort(3,1,reverse=true)\nlr=shuffle(range(1,9))\nlr=int(3.5)\nlr=tag(a,1)",
            b"seed=range(0,1e308)\nlr=range(0,9e18,1e-300)",
            b"lr=" + b"[" * 300,
        ],
        share=2,
    ),
    "settings": Target(
        "grids and ranges of scripts",
        _of_text(_settings),
        lambda folder: [
            b"lr=0.1,0.01\nbatch-size=range(16,64,16)\nout='{run_dir}/x'\n--{name} {value}",
            b"a=\"x,y\",null,true,1e-3\nb=choice(1,'2')\n",
        ],
        share=2,
    ),
    "scalar": Target(
        "`--scalar` expressions",
        _of_text(_scalar_option),
        lambda folder: [each.encode() for each in _SCALARS] + [b"a=(?P<x>\\d+)(?i:b)|[^c]{2,3}?"],
    ),
    "output": Target(
        "output of scripts",
        _output,
        lambda folder: [
            b"\7epoch 1 loss=0.5 acc 3/4\r\n\x1b[2Kloss: nan f1 = 0.7\rloss: 1e-3\n",
            b"\1\xff\xc3\xa9loss=1e999 9/0 a b5\x1b]8;;x\7",
        ],
    ),
    "gate": Target(
        "`--fail-if` conditions",
        _of_text(parse_gate),
        lambda folder: [b"slower:5%", b"worse:val_accuracy:0.01", b"worse:a:b:1e-3%"],
        share=0.5,
    ),
    "address": Target(
        "addresses of `runmanager ui`",
        _address,
        lambda folder: [
            b"GET\n/\n\n" + _GOOD,
            b"GET\n/sweep/broken\nseen=1&drawn=2\n" + _GOOD,
            b"HEAD\n/compare\nbaseline=broken&candidate=a%ff\n" + _GOOD,
            b"GET\n/sweep/../../etc/passwd\ntoken=TOKEN\nlocalhost\n",
            b"POST\n/\n\n[::1]:1\na=b; c",
        ],
    ),
}

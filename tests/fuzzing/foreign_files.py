"""Files of other programs, and checkpoints, as targets."""

import io
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import google_crc32c

from runmanager.app.adopt.adopt_folder import adopted_epochs, adopted_record, describe_early_ends
from runmanager.app.adopt.found_runs import find_runs, settings_of_name
from runmanager.app.compose.grid_rules import read_points
from runmanager.records.settings.signature import readable_name, signature
from runmanager.records.settings.values import flatten
from runmanager.records.storage.versioned_file import encode_record
from runmanager.results.tables.text_formats import to_csv
from runmanager.results.tfevents.table import event_rows, read_event_folders

from .target import Read, Target

__all__ = ["TARGETS"]

_EVENTS = "events.out.tfevents.1.host"
_LONGEST = 1 << 16


def _adopt(folder: Path) -> None:
    """Do what `runmanager adopt` does, but for writing."""
    found = list(find_runs(folder, []))
    for run, deviations in zip(found, describe_early_ends(found), strict=True):
        identity = signature(run.settings, unsigned=())
        name = readable_name(flatten(run.settings))
        metrics = run.metrics.metrics
        encode_record(adopted_record(run, name=name, signature=identity, metrics=metrics, deviations=deviations))
        for epoch in adopted_epochs(metrics):
            encode_record(epoch)


def _events(folder: Path) -> Read:
    """A byte says how the rest is read: as a file, or as messages and their lengths, which get valid checksums."""

    def read(data: bytes) -> None:
        (folder / _EVENTS).write_bytes(_checked(data[1:]) if data[:1] == b"\1" else data[1:])
        to_csv(event_rows(read_event_folders(folder))).encode()
        _adopt(folder)

    return read


def _checked(data: bytes) -> bytes:
    """Records with valid checksums; each begins with a length, the last may have a longer one than its message."""
    records, at = [], 0
    while at + 8 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        message = data[at + 8 : at + 8 + min(length, _LONGEST)]
        header = struct.pack("<Q", length)
        records.append(header + _checksum(header) + message + _checksum(message))
        at += 8 + len(message)
    return b"".join(records)


def _checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _event_seeds(folder: Path) -> Sequence[bytes]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    about = Summary.Value(tag="t").metadata
    about.plugin_data.plugin_name = "scalars"
    summaries = [
        Summary(value=[Summary.Value(tag="loss", simple_value=0.5)]),
        Summary(value=[Summary.Value(tag=tag, simple_value=1.5) for tag in ("epoch", "val_loss")]),
        Summary(value=[Summary.Value(tag="t", tensor=TensorProto(dtype=1, float_val=[2.0]), metadata=about)]),
        Summary(value=[Summary.Value(tag="t", tensor=TensorProto(dtype=2, tensor_content=struct.pack("<d", 2.0)))]),
        hparams_pb({"lr": 0.1, "name": "cnn", "fast": True}),
    ]
    events = [
        Event(wall_time=1e9 + step, step=step, summary=each) for step, each in enumerate([*summaries, *summaries])
    ]
    messages = [Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString()]
    messages += [each.SerializeToString() for each in events]
    framed = b"".join(struct.pack("<Q", len(message)) + message for message in messages)
    return [b"\1" + framed, b"\0" + _checked(framed)]


def _metrics_csv(folder: Path) -> Read:
    def read(data: bytes) -> None:
        (folder / "metrics.csv").write_bytes(data)
        _adopt(folder)

    return read


def _hydra_job(folder: Path) -> Read:
    config = folder / ".hydra" / "config.yaml"
    config.parent.mkdir()
    (folder / "metrics.csv").write_text("epoch,step,loss\n0,0,0.5\n")

    def read(data: bytes) -> None:
        config.write_bytes(data)
        _adopt(folder)

    return read


def _run_name(folder: Path) -> Read:
    def read(data: bytes) -> None:
        settings = settings_of_name(Path(data.decode(errors="surrogateescape").replace("\0", "")))
        signature(settings, unsigned=())
        readable_name(flatten(settings))

    return read


def _points(folder: Path) -> Read:
    """The first byte decides the kind of the file."""

    def read(data: bytes) -> None:
        file = folder / f"points{('.yaml', '.json', '.csv')[data[:1] in (b'1', b'2') and int(data[:1])]}"
        file.write_bytes(data[1:])
        read_points(str(file), key="--points")

    return read


def _checkpoint(folder: Path) -> Read:
    """The first byte decides: the input is the file, or the pickle in a well-formed one."""
    from runmanager.tracking.checkpoint.checkpoint_file import read_state

    path = folder / "checkpoint.pt"

    def read(data: bytes) -> None:
        path.write_bytes(_packed(data[1:]) if data[:1] == b"\1" else data[1:])
        read_state(path)

    return read


def _packed(pickled: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", bytes(28))
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


def _checkpoints(folder: Path) -> Sequence[bytes]:
    import torch

    from runmanager.tracking.checkpoint.checkpoint_file import write_state

    path = folder / "checkpoint.pt"
    write_state(path, {"model": {"a": torch.zeros(7)}, "epoch": 3, "rates": [0.1, None, "x"]})
    with zipfile.ZipFile(path) as archive:
        (pickled,) = (archive.read(name) for name in archive.namelist() if name.endswith("data.pkl"))
    return [b"\0" + path.read_bytes(), b"\1" + pickled]


_YAML = (
    b"lr: 0.1\nmodel:\n  name: cnn\n  layers: [6, 12]\n",
    b"a: &a {x: 1, y: [1e-3, 2026-01-01, 0x1F, 0b1, 1_000, 190:20:30, yes, ~, .inf, .nan]}\nb: {<<: *a, z: *a}\n",
    b"a: !!binary aGk=\nb: !!set {x, y}\nc: !!omap [{x: 1}]\nd: !!timestamp 2026-01-01 10:00:00.5 +1\ne: |\n  text\n",
    b"? [1, 2]\n: 3\n5: six\nnull: 1\n'': ${lr}\n",
    b"a: 99999999999999999999999999\n",
    b"a: &a [*a]\n",
    b"".join(b"k%d: 1\n" % number for number in range(9000)),
)

TARGETS = {
    "events": Target("event files", _events, _event_seeds, share=2),
    "metrics_csv": Target(
        "metrics.csv",
        _metrics_csv,
        lambda folder: [
            b"epoch,step,loss,val_loss\n0,9,0.5,\n0,9,,0.6\n1,19,0.4,\n",
            b'"a ""b""",loss\r\n1,nan\r\n"1\n2",1e999\r\n',
            b"\xef\xbb\xbfepoch,step,loss\n1e400,-1,1_000\n",
        ],
    ),
    "hydra_yaml": Target("the YAML of adopted runs", _hydra_job, lambda folder: _YAML, share=2),
    "run_name": Target(
        "settings in names of folders",
        _run_name,
        lambda folder: [b"lr=0.1,batch=32/seed=1", b"a=1e999,b=\xff"],
        share=0.5,
    ),
    "points": Target(
        "files of points",
        _points,
        lambda folder: [
            b"0- {lr: 0.1, seed: 1}\n- {lr: 1e-3}\n",
            b'1[{"lr": 0.1}, {"lr": [1]}]',
            b'2lr,model\n0.1,"c,n"\n',
        ],
    ),
    "checkpoint": Target("checkpoints", _checkpoint, _checkpoints, share=2),
}

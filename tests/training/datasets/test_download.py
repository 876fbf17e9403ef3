"""Downloads from a local server: once, complete, one process at a time, and with clear errors."""

import fcntl
import functools
import gzip
import hashlib
import http.server
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torchvision

from runmanager.errors import DatasetError
from runmanager.training.datasets.registry import load_dataset, prepare_dataset
from runmanager.training.datasets.torchvision_files import SOURCES, download
from runmanager.training.options.dataset import FashionMnistOptions, MnistOptions


class Handler(http.server.SimpleHTTPRequestHandler):
    served: ClassVar[list[str]] = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.served.append(Path(self.path).name)
        super().do_GET()


@pytest.fixture
def server(tmp_path, monkeypatch):
    """MNIST's four files, compressed, on a local port; torchvision is configured to use it."""
    folder = tmp_path / "server"
    folder.mkdir()
    resources = []
    for name in SOURCES["mnist"].files:
        count = 40 if name.startswith("train") else 10
        shape = (count, 28, 28) if "images" in name else (count,)
        header = np.array([0x800 + len(shape), *shape], dtype=">u4").tobytes()
        values = np.random.default_rng(0).integers(0, 10, shape, dtype=np.uint8)
        content = gzip.compress(header + values.tobytes())
        (folder / f"{name}.gz").write_bytes(content)
        resources.append((f"{name}.gz", hashlib.md5(content).hexdigest()))
    Handler.served.clear()
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        for kind in (torchvision.datasets.MNIST, torchvision.datasets.FashionMNIST):
            monkeypatch.setattr(kind, "mirrors", [f"http://127.0.0.1:{running.server_port}/"])
            monkeypatch.setattr(kind, "resources", resources)
        yield folder
        running.shutdown()
        thread.join(60)


@pytest.mark.parametrize(("options", "name"), [(MnistOptions(), "MNIST"), (FashionMnistOptions(), "FashionMNIST")])
def test_only_the_first_use_downloads(server, tmp_path, capsys, options, name):
    root = tmp_path / "data"
    prepare_dataset(options, data_root=root)
    assert f"Downloading {options.name} to {root}/{name}/raw (about" in capsys.readouterr().err
    data = load_dataset(options, data_root=root, seed=0)
    assert (len(data.train), len(data.validation)) == (40, 10)
    assert sorted(path.name for path in (root / name / "raw").iterdir()) == sorted(SOURCES[options.name].files)
    capsys.readouterr()
    before = list(Handler.served)
    prepare_dataset(options, data_root=root)
    assert Handler.served == before and capsys.readouterr().err == ""


def test_files_of_a_killed_download_are_not_used(server, tmp_path):
    root = tmp_path / "data"
    left = root / ".download-mnist" / "MNIST" / "raw"
    left.mkdir(parents=True)
    for name in SOURCES["mnist"].files:
        (left / name).write_bytes(b"half")
    prepare_dataset(MnistOptions(), data_root=root)
    assert len(load_dataset(MnistOptions(), data_root=root, seed=0).train) == 40
    assert not (root / ".download-mnist").exists()


def test_concurrent_processes_download_once(server, tmp_path, capsys):
    root = tmp_path / "data"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: download("mnist", data_root=root), range(4)))
    assert capsys.readouterr().err.count("Downloading mnist") == 1
    assert len(load_dataset(MnistOptions(), data_root=root, seed=0).train) == 40


def test_a_waiting_process_reports_it(server, tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    output = tmp_path / "output"  # pytest's capture can lose lines that another thread writes while it is read
    with (root / ".download.lock").open("w") as held, output.open("w") as stderr, redirect_stderr(stderr):
        fcntl.flock(held, fcntl.LOCK_EX)
        thread = threading.Thread(target=download, args=("mnist",), kwargs={"data_root": root}, daemon=True)
        thread.start()
        until = time.monotonic() + 60
        while "Waiting for another process" not in output.read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
        assert not Handler.served
        fcntl.flock(held, fcntl.LOCK_UN)
        thread.join(60)
    assert (root / "MNIST/raw/train-images-idx3-ubyte").is_file()


def test_a_corrupt_file_is_refused_and_deleted(server, tmp_path):
    (server / "t10k-labels-idx1-ubyte.gz").write_bytes(b"something else")
    root = tmp_path / "data"
    with pytest.raises(DatasetError, match=r"'mnist' must be in .*MNIST/raw, and could not be downloaded: .*corrupted"):
        prepare_dataset(MnistOptions(), data_root=root)
    assert [path.name for path in root.iterdir()] == [".download.lock"]


def test_an_offline_error_names_the_folder_and_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    root = tmp_path / "data"
    with pytest.raises(
        DatasetError, match=r"refused.*run it again with a network connection, .*`dataset=digits`"
    ) as caught:
        prepare_dataset(MnistOptions(), data_root=root)
    assert str(root / "MNIST" / "raw") in str(caught.value) and "\n" not in str(caught.value)


def test_an_unwritable_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DatasetError, match=r"file/data cannot be written \(.*choose another folder with `data_root=…`"):
        prepare_dataset(MnistOptions(), data_root=tmp_path / "file" / "data")

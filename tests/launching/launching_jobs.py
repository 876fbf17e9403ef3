"""Functions that the tests run as jobs, in a module that their processes can import."""

import gc
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from runmanager.launching.local.turns import current_turn_client

ALARM_SECONDS = 100  # until SIGALRM ends a job that is not ended otherwise


def wait_until(path: Path) -> None:
    """Wait until a file exists. Raises `TimeoutError` instead of hanging."""
    deadline = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} was not created")
        os.sched_yield()


def my_pid() -> int:
    return os.getpid()


def meet(mine: Path, other: Path) -> str:
    mine.touch()
    wait_until(other)
    return "met"


def raise_error() -> NoReturn:
    raise ValueError("a bad value")


def raise_unprintable() -> NoReturn:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    raise UnprintableError


def raise_interrupt() -> NoReturn:
    raise KeyboardInterrupt


def exit_with(status: Any) -> NoReturn:
    sys.exit(status)


def die_by(number: int) -> None:
    os.kill(os.getpid(), number)


def answer_and_hang() -> str:
    threading.Thread(target=threading.Event().wait).start()  # Python waits for it before it exits
    return "done"


def exit_without_answer() -> NoReturn:
    os._exit(0)


def unpicklable() -> Any:
    return lambda: None


class Unreadable:
    """Can be pickled but not unpickled."""

    def __reduce__(self) -> Any:
        return int, ("not a number",)


def unreadable() -> Unreadable:
    return Unreadable()


def half_a_result() -> NoReturn:
    """Die while sending the result."""
    (pipe,) = (each for each in gc.get_objects() if isinstance(each, Connection) and each.writable)
    os.write(pipe.fileno(), struct.pack("!i", 1000) + b"only the beginning")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def large() -> bytes:
    return b"x" * 5_000_000


def surroundings(name: str) -> tuple[str, str | None, str | None]:
    return str(Path.cwd()), os.environ.get(name), os.environ.get("RUNMANAGER_OWN_PROCESS")


def interrupt_myself() -> tuple[str, bool]:
    os.kill(os.getpid(), signal.SIGINT)
    return "still here", os.getsid(0) == os.getpid()


def num_threads() -> int:
    import torch

    return torch.get_num_threads()


def loader_sum() -> int:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.arange(100)), batch_size=10, num_workers=2)
    return int(sum(batch.sum() for (batch,) in loader))


def leave_a_grandchild() -> int:
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.alarm(100); signal.pause()"]).pid


def leave_a_grandchild_and_die(pids: Path) -> None:
    write_whole(pids, str(leave_a_grandchild()))
    os.kill(os.getpid(), signal.SIGKILL)


def kill_the_forkserver(when: Path | None = None) -> None:
    """Kill the forkserver, once the file `when` exists, and do not exit."""
    if when is not None:
        wait_until(when)
    os.kill(os.getppid(), signal.SIGKILL)
    signal.alarm(ALARM_SECONDS)
    signal.pause()


def write_whole(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def stay(pids: Path, *, until_signal: bool) -> str:
    """Write the pids of this process and of a grandchild that it starts; run until SIGTERM, or for ever."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    write_whole(pids, f"{os.getpid()} {leave_a_grandchild()}")
    signal.alarm(ALARM_SECONDS)
    while not stopped:
        time.sleep(0.01)  # signal.pause() might begin just after the signal, and never return
    write_whole(pids.with_suffix(".signalled"), str(stopped))
    while not until_signal:
        signal.pause()
    return "stopped"


def _stay_as_a_worker() -> None:
    import marker  # written by the test

    marker.stay("worker")


def _answer_and_stay(pipe: Connection) -> None:
    pipe.recv()
    pipe.send("answered")
    _stay_as_a_worker()


def start_many() -> None:
    """Fork workers one after the other, slowly, as a loader with many workers does."""
    for _ in range(20):
        multiprocessing.Process(target=_stay_as_a_worker, daemon=True).start()
        time.sleep(0.05)  # as if a fork took that long
    signal.alarm(ALARM_SECONDS)
    signal.pause()


def start_from_a_thread() -> None:
    """Start a worker from a thread that ends; the worker still answers, and lives as long as the job."""
    mine, its = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=_answer_and_stay, args=(its,), daemon=True)
    thread = threading.Thread(target=worker.start)
    thread.start()
    thread.join()
    signal.alarm(ALARM_SECONDS)
    while Path(f"/proc/self/task/{thread.native_id}").exists():
        os.sched_yield()  # for Python it ends a moment before it does for the kernel
    mine.send("are you there?")
    Path(f"{mine.recv()}.{os.getpid()}").touch()
    signal.pause()


def leave_a_daemon(pid: Path) -> None:
    """Start a process that leads a new session, like a daemon, and exit."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if (daemon := os.fork()) == 0:
            signal.alarm(ALARM_SECONDS)
            signal.pause()
        write_whole(pid, str(daemon))
        os._exit(0)
    os.waitpid(child, 0)


def ignore_sigterm(pids: Path) -> str:
    return stay(pids, until_signal=False)


def stop_at_sigterm(pids: Path) -> str:
    return stay(pids, until_signal=True)


def touch(path: Path) -> None:
    path.touch()


def on_a_gpu(events: Path, partners: int) -> str:
    """Write which GPUs are visible, and return once `partners` jobs have started."""
    seen = os.environ["CUDA_VISIBLE_DEVICES"]
    append(events, f"begin {seen}")
    deadline = time.monotonic() + 60
    while sum(line.startswith("begin") for line in events.read_text().splitlines()) < partners:
        if time.monotonic() > deadline:
            raise TimeoutError("the other jobs did not start")
        time.sleep(0.01)
    append(events, f"end {seen}")
    return seen


def append(path: Path, line: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def hang(pids: Path) -> NoReturn:
    """Write the pids of this process and of a grandchild that it starts, and hang."""
    write_whole(pids, f"{os.getpid()} {leave_a_grandchild()}")
    signal.alarm(ALARM_SECONDS)
    signal.pause()
    raise AssertionError


def stall(heartbeat: Path, pids: Path) -> NoReturn:
    """Make some steps and then none, while the heartbeat thread continues."""
    from runmanager.records.run.heartbeat import read_beat
    from runmanager.tracking.monitoring.heartbeat_writer import Heartbeat

    beating = Heartbeat(heartbeat, seconds=0.05).start()
    beating.progress = 7
    signal.alarm(ALARM_SECONDS)
    while read_beat(heartbeat).counter < 5:
        time.sleep(0.01)
    write_whole(pids, f"{os.getpid()} {os.getpid()}")
    signal.pause()
    raise AssertionError


def die_in_first_tries(tries: Path, times: int) -> int:
    """Return the number of this try; die by SIGKILL in the first `times` tries."""
    append(tries, "tried")
    number = len(tries.read_text().splitlines())
    if number <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def take_turns(log: Path, key: int, dies_in: int | None) -> int:
    """Log the begin and end of each measured turn and return their count; die in turn `dies_in`."""
    client = current_turn_client()
    assert client is not None
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    samples = 0
    for number in range(1000):
        if client.ask(is_measured=True, samples=samples, seconds=1.0, is_cancelled=lambda: False) is None:
            return number
        os.write(handle, f"begin {key}\n".encode())
        if number == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(handle, f"end {key}\n".encode())
        samples = 10
    raise AssertionError("the turns never ended")

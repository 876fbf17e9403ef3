"""What the jobs of the tests do, in their own processes: importable there, as a test module is not."""

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

from runmanager.launching.local.turn_keeper import current_turn_client

PATIENCE_SECONDS = 100  # after which a job that nobody ends dies of SIGALRM


def wait_until(path: Path) -> None:
    """Wait for a file to appear; a deadline ends what would hang, it measures nothing."""
    deadline = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} never came")
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
            raise RuntimeError("no words")

    raise UnprintableError


def raise_interrupt() -> NoReturn:
    raise KeyboardInterrupt


def exit_with(status: Any) -> NoReturn:
    sys.exit(status)


def die_by(number: int) -> None:
    os.kill(os.getpid(), number)


def never_leave() -> str:
    threading.Thread(target=threading.Event().wait).start()  # Python waits for it before the process ends
    return "done"


def leave_without_a_word() -> NoReturn:
    os._exit(0)


def unpicklable() -> Any:
    return lambda: None


class Unreadable:
    """Can be sent, and cannot be read."""

    def __reduce__(self) -> Any:
        return int, ("not a number",)


def unreadable() -> Unreadable:
    return Unreadable()


def half_a_result() -> NoReturn:
    """Die while the result is being sent."""
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


def leave_a_grandchild_and_die(told: Path) -> None:
    write_whole(told, str(leave_a_grandchild()))
    os.kill(os.getpid(), signal.SIGKILL)


def kill_the_forkserver(when: Path | None = None) -> None:
    """Kill it, as soon as the file is there, and stay."""
    if when is not None:
        wait_until(when)
    os.kill(os.getppid(), signal.SIGKILL)
    signal.alarm(PATIENCE_SECONDS)
    signal.pause()


def write_whole(path: Path, text: str) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(text)
    os.replace(beside, path)


def stay(told: Path, *, heed: bool) -> str:
    """Say who is here, and stay until SIGTERM, or beyond it; a grandchild stays along."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    pids = f"{os.getpid()} {leave_a_grandchild()}"
    write_whole(told, pids)
    signal.alarm(PATIENCE_SECONDS)
    while not stopped:
        time.sleep(0.01)  # a pause might begin just after the signal, and last
    write_whole(told.with_suffix(".signalled"), str(stopped))
    while not heed:
        signal.pause()
    return "went in peace"


def _stay_as_a_worker() -> None:
    import places  # the test's own

    places.stay("worker")


def _answer_and_stay(asked: Connection) -> None:
    asked.recv()
    asked.send("answered")
    _stay_as_a_worker()


def start_many() -> None:
    """Go on forking workers, slowly, as a loader does that has many to start."""
    for _ in range(20):
        multiprocessing.Process(target=_stay_as_a_worker, daemon=True).start()
        time.sleep(0.05)  # each fork takes so long
    signal.alarm(PATIENCE_SECONDS)
    signal.pause()


def start_from_a_thread() -> None:
    """Start a worker from a thread that ends at once: the worker answers all the same, and stays until the job goes."""
    mine, its = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=_answer_and_stay, args=(its,), daemon=True)
    thread = threading.Thread(target=worker.start)
    thread.start()
    thread.join()
    signal.alarm(PATIENCE_SECONDS)
    while Path(f"/proc/self/task/{thread.native_id}").exists():
        os.sched_yield()  # Python takes it for gone a moment before the kernel does
    mine.send("are you there?")
    Path(f"{mine.recv()}.{os.getpid()}").touch()
    signal.pause()


def leave_a_daemon(told: Path) -> None:
    """Leave a process that is its own leader, as daemons become, and end."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if (daemon := os.fork()) == 0:
            signal.alarm(PATIENCE_SECONDS)
            signal.pause()
        write_whole(told, str(daemon))
        os._exit(0)
    os.waitpid(child, 0)


def stay_deaf(told: Path) -> str:
    return stay(told, heed=False)


def stay_polite(told: Path) -> str:
    return stay(told, heed=True)


def touch(path: Path) -> None:
    path.touch()


def on_a_gpu(events: Path, partners: int) -> str:
    """Note which GPUs are seen, and go on only when so many jobs have come so far."""
    seen = os.environ["CUDA_VISIBLE_DEVICES"]
    append(events, f"begin {seen}")
    deadline = time.monotonic() + 60
    while sum(line.startswith("begin") for line in events.read_text().splitlines()) < partners:
        if time.monotonic() > deadline:
            raise TimeoutError("the others never came")
        time.sleep(0.01)
    append(events, f"end {seen}")
    return seen


def append(path: Path, line: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def hang(told: Path) -> NoReturn:
    """Say who is here, leave a grandchild, and do nothing more."""
    write_whole(told, f"{os.getpid()} {leave_a_grandchild()}")
    signal.alarm(PATIENCE_SECONDS)
    signal.pause()
    raise AssertionError


def stop_making_steps(heartbeat: Path, told: Path) -> NoReturn:
    """Make some steps, and then none, while the thread that beats lives on."""
    from runmanager.records.run.heartbeat import read_beat
    from runmanager.tracking.environment.heartbeat_writer import Heartbeat

    beating = Heartbeat(heartbeat, seconds=0.05).start()
    beating.progress = 7
    signal.alarm(PATIENCE_SECONDS)
    while read_beat(heartbeat).counter < 5:
        time.sleep(0.01)
    write_whole(told, f"{os.getpid()} {os.getpid()}")
    signal.pause()
    raise AssertionError


def die_so_often(tries: Path, times: int) -> int:
    """Count the tries; die by SIGKILL in the first of them."""
    append(tries, "tried")
    number = len(tries.read_text().splitlines())
    if number <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def take_turns(log: Path, key: int, dies_in: int | None) -> int:
    """Write down the begin and the end of each measured turn, and die in the one of that number; return their count."""
    seat = current_turn_client()
    assert seat is not None
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    samples = 0
    for number in range(1000):
        if seat.ask(is_measured=True, samples=samples, seconds=1.0, is_cancelled=lambda: False) is None:
            return number
        os.write(handle, f"begin {key}\n".encode())
        if number == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(handle, f"end {key}\n".encode())
        samples = 10
    raise AssertionError("the turns never ended")

"""A server that imports modules once and forks a process for each program; `forked_python.py` starts it.

It ends when its standard input is closed.
"""

import atexit
import builtins
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
import types
from pathlib import Path
from typing import NoReturn

MESSAGE_BYTES = 1 << 20


def serve(address: str, modules: list[str]) -> list[str]:
    """Fork a process for each request. Returns in those processes only, with the words of the program to run."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(f"{address}.new")
    listening.listen()
    os.rename(f"{address}.new", address)
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # a collection would copy the pages that the programs share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            shutil.rmtree(Path(address).parent)
            os._exit(0)
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            return _fork_program(connection)
        connection.close()


def _fork_program(connection: socket.socket) -> list[str]:
    """Fork the program of a request, and send its pid and in the end its exit status. Returns in its process only."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
    request = json.loads(message)
    if pid := os.fork():
        for stream in streams:  # the reader of a pipe waits until all have closed it
            os.close(stream)
        try:
            connection.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        finally:
            os._exit(0)
    connection.close()
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    _customize_site()
    return list(request["words"])


def _customize_site() -> None:
    """Import `sitecustomize` of a folder in PYTHONPATH, as Python does at its start."""
    for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if Path(folder, "sitecustomize.py").is_file():
            sys.path.insert(0, folder)
            sys.modules.pop("sitecustomize", None)
            importlib.import_module("sitecustomize")
            sys.path.remove(folder)


def run(words: list[str]) -> None:
    """Run `python WORDS`, where the first word is a script, `-c` or `-m`."""
    sys.orig_argv = [sys.executable, *words]
    if words[0] == "-m":
        sys.path[0] = str(Path.cwd())
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if words[0] == "-c":
        sys.path[0], sys.argv, code = "", ["-c", *words[2:]], compile(words[1], "<string>", "exec")
    else:
        sys.path[0], sys.argv = str(Path(words[0]).absolute().parent), list(words)
        main.__file__ = words[0]
        code = compile(Path(words[0]).read_bytes(), words[0], "exec")
    sys.modules["__main__"] = main
    atexit.register(main.__dict__.clear)  # the last to be called
    exec(code, main.__dict__)


def end(status: int) -> NoReturn:
    """End the process as Python does, but for taking down each module, which takes longer than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as `multiprocessing` does
    atexit._run_exitfuncs()
    gc.collect()  # closes the files that the program has left open
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> NoReturn:
    """Serve; in the process of a program, run it."""
    words = serve(sys.argv[1], sys.argv[2:])
    try:
        run(words)
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
        end(error.code if isinstance(error.code, int) else int(error.code is not None))
    except Exception:
        sys.excepthook(*sys.exc_info())
        end(1)
    except BaseException:  # ends the process by a signal
        gc.unfreeze()  # modules complain of what Python leaves
        raise
    end(0)


if __name__ == "__main__":
    main()

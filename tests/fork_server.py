"""A server that imports modules once and forks a process for each program; `forked_python.py` starts it.

It ends when its standard input is closed.
"""

import builtins
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import types
from pathlib import Path

MESSAGE_BYTES = 1 << 20


def serve(address: str, modules: list[str]) -> list[str]:
    """Fork a process for each request. Returns in those processes only, with the words of the program to run."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(f"{address}.new")
    listening.listen()
    os.rename(f"{address}.new", address)
    for name in modules:
        importlib.import_module(name)
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
    return list(request["words"])


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
    exec(code, main.__dict__)


if __name__ == "__main__":
    run(serve(sys.argv[1], sys.argv[2:]))

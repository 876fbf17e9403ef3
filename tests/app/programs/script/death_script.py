"""A script that ends in every way, and how each of its ends is told."""

# Ends in the way that it is told to. Says with files in the current folder that it has begun.
DEATHS = """
import argparse, json, os, signal, sys
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("command")
parser.add_argument("--way")
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--fast", action="store_true")
parser.add_argument("--kind", choices=["a", "b"])
parser.add_argument("--log-dir")
args = parser.parse_args()
Path("begun", os.environ["RUNMANAGER_RUN"].rpartition("/")[2]).mkdir(parents=True)
print(json.dumps(sys.argv[1:]), os.environ["RUNMANAGER_ATTEMPT"], "RUNMANAGER_DRIVEN" in os.environ)
for epoch in range(4):
    print(f"\\r{epoch}: loss {args.lr / (epoch + 1)}", end="", file=sys.stderr)
    print(f"\\rAccuracy: {epoch + 1}/5", end="")
    print(f"\\rAccuracy: {epoch + 1}/5", end="")
print()
print(file=sys.stderr)

def memory():
    raise MemoryError("all is full")

class OutOfMemoryError(RuntimeError): pass

def raises():
    try:
        int("x")
    except ValueError as error:
        raise KeyError("a key\\nin two lines") from error

def survives():
    import traceback
    try:
        raises()
    except KeyError:
        traceback.print_exc()
    for line in range(100):
        print(line, file=sys.stderr)
    sys.exit(1)

{
    "fine": lambda: None,
    "raises": raises,
    "memory": memory,
    "cuda": lambda: exec("raise RuntimeError('CUDA error: out of memory')"),
    "exits": lambda: sys.exit(3),
    "says": lambda: sys.exit("no data here"),
    "survives": survives,
    "unprinted": lambda: exec("del sys.stderr; raise ValueError('unseen')"),
    "diverges": lambda: print("loss nan", file=sys.stderr),
    "segfaults": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
}[args.way]()
"""
SCALARS = ("--scalar", r"loss=loss (\S+)", "--scalar", r"val/acc=Accuracy: (\d+)/(\d+)")
WAYS = ("fine", "raises", "memory", "cuda", "exits", "says", "survives", "unprinted", "diverges", "segfaults", "killed")
ENDS = {
    "fine": ("finished", None, ""),
    "raises": ("failed", "exception", "KeyError: 'a key\\nin two lines'"),
    "memory": ("failed", "out_of_memory", "MemoryError: all is full"),
    "cuda": ("failed", "out_of_memory", "RuntimeError: CUDA error: out of memory"),
    "exits": ("failed", "exit", "the script ended with status 3"),
    "says": ("failed", "exit", "the script ended with status 1: no data here"),
    "survives": ("failed", "exit", "the script ended with status 1: 99"),
    "unprinted": ("failed", "exception", "Python could not print the exception: lost sys.stderr"),
    "diverges": ("failed", "diverged", "loss is not finite"),
    "segfaults": ("killed", "signal", "SIGSEGV"),
    "killed": ("killed", "signal", "SIGKILL"),
}

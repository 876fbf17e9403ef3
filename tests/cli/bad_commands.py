"""Command lines with faults: each must end with status 2 and one clear line a fault, and leave nothing behind.

Words of the built-in job follow `JOB`; the folder has a sweep `outputs/grid`, `own.py`, `train.py`, and `points.csv`.
"""

from collections.abc import Sequence

__all__ = ["BAD_COMMANDS", "IN_PROCESSES", "TRAIN"]

TRAIN = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--flag", action="store_true")
parser.parse_args()
"""

_SETTINGS: Sequence[str] = (
    *("lr", "lr=", "lr=abc", "lr=-1", "lr=0", "lr=nan", "lr=inf", "lr=1e999", "lr=null", "lr=[0.1]", "lr=0.1,abc"),
    *("batch_size=0", "batch_size=1.5", "batch_size=-3", "batch_size=99999999999999999999", "batch_size=true"),
    *("num_workers=-1", "num_workers=many", "epochs=0", "epochs=1.5", "epochs=-1", "seed=-1", "seed=x"),
    *("device=gpu", "device=cuda:x", "device=", "device=3", "eval_batch_size=0", "log_every=-1"),
    *(
        "model=3",
        "model=nothing",
        "model=",
        "model=null",
        "dataset=3",
        "dataset=[a,b]",
        "optimizer=0.1",
        "optimizer=adem",
    ),
    *("scheduler=true", "loader=none_such", "measure=twice", "loss=3", "experiment=none_such", "experiment=3"),
    *("model.nothing=1", "model={a:1}", "optimizer.nothing=1", "+nothing=1", "nothing=1", "++model.nothing=1", "~lr"),
    *("hydra.nothing=1", "hydra.launcher.workers=0", "hydra.launcher.workers=x", "hydra.launcher.timeout=-1"),
    *("hydra.launcher.retries=-1", "hydra.launcher.on_error=perhaps"),
    *("hydra/launcher=none_such", "hydra/launcher=3", "hydra/sweeper=none_such", "hydra.sweep.dir=x"),
    *(
        "name=",
        "name=a/b",
        "name=..",
        "name=.hidden",
        "name=\x1b[31mred",
        "name=a\nb",
        "name=' '",
    ),
    *("output_root=", "output_root=' '", "output_root=a\x07b", "resume=perhaps", "resume=must", "rerun_changed=true"),
    *("precision=fp7", "micro_batch=0", "on_oom=hope", "compile=perhaps", "early_stop.patience=-1"),
    *("checkpoint.every=-1", "checkpoint.keep_best=nothing"),
    *(
        "lr=0.1,",
        "lr=range(1,2",
        "lr='0.1",
        "lr=${nothing}",
        "lr=choice()",
        "=1",
        "lr==",
        "-x",
        "--nothing",
        "--lr=0.1",
    ),
    *("model=custom", "dataset.size=0"),
)
_OF_JOB: Sequence[Sequence[str]] = (
    ("lr=0.1", "lr=abc", "batch_size=0"),
    ("model=3", "lr=-1", "nothing=1"),
    ("batch_size=0,0,-1",),
    ("--zip", "lr,batch_size"),
    ("--zip",),
    ("lr=0.1,0.2", "batch_size=1,2,3", "--zip", "lr,batch_size"),
    ("--points", "none_such.csv"),
    ("--points", "own.py"),
    ("lr=0.1", "--points", "points.csv"),
    ("--exclude", "lr >"),
    ("--exclude", "nothing>1"),
    ("--exclude", "lr>0"),
    ("--notify", "nothing"),
    ("--save", "a/b"),
    ("--restore",),
    ("--dry-run", "lr=abc"),
    ("model=custom", "model._target_=own.Nothing"),
    ("model=custom", "model._target_=none_such.Net"),
    ("model=custom", "+model.api_key=***", "model._target_=own.Net"),
    ("--secrets",),
    ("--multirun=x",),
)
_SCRIPTS: Sequence[Sequence[str]] = (
    ("none_such.py",),
    ("-m", "none.such"),
    ("train.py", "lr"),
    ("train.py", "lrr=1"),
    ("train.py", "lr=0.1,"),
    ("train.py", "flag=false", "--nothing"),
    ("--argument", "x", "train.py"),
    ("--better", "max", "train.py"),
    ("--better", "perhaps", "--metric", "x", "train.py"),
    ("--metric", "strange", "train.py"),
    ("--name", "a/b", "train.py"),
    ("--name", "", "train.py"),
    ("--name", "a\x1bb", "train.py"),
    ("--output-root", "", "train.py"),
    ("--processes", "0", "train.py"),
    ("--processes", "x", "train.py"),
    ("--workers", "0", "train.py"),
    ("--workers", "x", "train.py"),
    ("--timeout", "-1", "train.py"),
    ("--retries", "-1", "train.py"),
    ("--gpus-per-run", "9", "train.py"),
    ("--launcher", "cloud", "train.py"),
    ("--slurm", "time=1", "train.py"),
    ("--scalar", "x", "train.py"),
    ("--scalar", "x=(", "train.py"),
    ("--resume-with", "x", "train.py"),
    ("--resume", "must", "train.py"),
    ("--resume", "perhaps", "train.py"),
    ("--unsigned", "nothing", "train.py", "lr=0.1"),
    ("--device", "nothing", "train.py", "lr=0.1"),
    ("--python", "none_such", "train.py"),
    ("--points", "none_such.csv", "train.py"),
    ("--save", "x", "train.py"),
    ("train.py", "api-key=${oc.env:NONE_SUCH_VARIABLE}"),
)
_READERS: Sequence[Sequence[str]] = (
    ("nothing",),
    ("table",),
    ("table", "none_such"),
    ("table", "grid", "--sort", "nothing"),
    ("table", "grid", "--columns", "nothing"),
    ("table", "grid", "--where", "lr >"),
    ("table", "grid", "--pivot", "a:b:c:d"),
    ("table", "grid", "--format", "pdf"),
    ("table", "grid", "--format"),
    ("compare", "grid", "--axis", "nothing"),
    ("compare", "grid", "--drift", "-1"),
    ("compare", "grid", "--drift", "x"),
    ("compare", "grid", "--margin", "nan"),
    ("compare", "grid", "--fail-if", "nothing"),
    ("compare", "grid", "none_such"),
    ("compare", "grid", "--metric", "nothing"),
    ("best", "none_such"),
    ("best", "grid", "--metric", "nothing"),
    ("best", "grid", "--better", "perhaps"),
    ("show", "grid/none_such"),
    ("show", "../../etc"),
    ("diff", "grid/batch_size=100"),
    ("reproduce", "none_such"),
    ("report", "none_such"),
    ("export", "grid", "--to", "paper"),
    ("adopt", "none_such"),
    ("adopt", "outputs/grid"),
    ("tag", "grid", ""),
    ("mv", "grid", ".."),
    ("mv", "grid", "a\x1bb"),
    ("rm", "none_such", "--yes"),
    ("rm", "/", "--yes"),
    ("watch", "none_such", "--once"),
    ("watch", "grid", "--once", "--heartbeat-timeout", "-1"),
    ("tensorboard", "none_such"),
    ("tensorboard", "grid", "--port", "99999"),
    ("ls", "none_such"),
    ("schema", "nothing"),
    ("help", "nothing"),
    ("doctor", "--threads", "0"),
    ("duel", "lr=0.1"),
    ("duel", "lr=0.1", "lr=0.1"),
)

BAD_COMMANDS: Sequence[tuple[str, ...]] = (
    *(("sweep", word) for word in _SETTINGS),
    *(("sweep", *words) for words in _OF_JOB),
    *(("sweep", *words) for words in _SCRIPTS),
    *(("run", "lr=0.1,0.2"), ("run", "train.py", "lr=0.1,0.2"), ("sweep", "lr=0.1", "-m", "batch_size=0")),
    *(tuple(words) for words in _READERS),
)
"""The words after `runmanager`."""

IN_PROCESSES = tuple(BAD_COMMANDS[index] for index in range(0, len(BAD_COMMANDS), len(BAD_COMMANDS) // 10))[:10]
"""Those that also run as processes."""

"""Forty command lines, right and wrong, for each kind of program: what each says, from its first line on.

`python -m tests.cli.test_grammar` writes grammar.txt again.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import process_environment
from .forked_commands import ForkedCommands

SAID = Path(__file__).with_name("grammar.txt")
MAX_LINES = 4
SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch-size", type=int, default=10)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--retries", type=int, default=0)
print(parser.parse_args())
"""
APPLICATION = """
import hydra

@hydra.main(version_base=None, config_path=".", config_name="config")
def main(cfg):
    return cfg.lr

if __name__ == "__main__":
    main()
"""
CONFIG = "lr: 0.1\nbatch_size: 10\nepochs: 1\nseed: 0\ndevice: cpu\n"
PROGRAMS = ("", "train.py", "app.py")
LINES = """
lr=0.1,0.2
--name first lr=0.1,0.2 --workers 2
lr=0.1,0.2 --name first --workers=2 --quiet
lr=0.1,0.2 name=first
lr=0.1,0.2 --name first name=second
lr=0.1,0.2 --name first name=first
lr=0.1,0.2 seed=0,1 --exclude 'lr>0.1 and seed>0'
lr=0.1,0.2 batch_size=10,20 --zip lr,batch_size
lr=0.1,0.2 batch_size=10,20,30 --zip lr,batch_size
lr=0.1 --points points.csv
lr=0.1,0.2 --timeout 60 --stall-timeout 30 --retries 2
lr=0.1,0.2 --retries many
lr=0.1,0.2 --workers 0
lr=0.1,0.2 --gpus 0 --gpus-per-run 1
lr=0.1,0.2 --launcher-option threads=1
lr=0.1,0.2 --launcher-option thread=1
lr=0.1,0.2 --launcher slurm --workers 2
lr=0.1,0.2 --slurm time=10
lr=0.1,0.2 --launcher ray2
lr=0.1,0.2 --processes 2
lr=0.1,0.2 --device cpu
lr=0.1,0.2 --metric val_loss --better min
lr=0.1,0.2 --better up
lr=0.1,0.2 --scalar 'loss=loss (.*)'
lr=0.1,0.2 --unsigned epochs epochs=3
lr=0.1,0.2 --chdir
lr=0.1,0.2 --resume-with 'resume={run_dir}/last.pt'
lr=0.1,0.2 --seed-name seed seed=0,1
lr=0.1,0.2 --seed-name sead seed=0,1
lr=0.1,0.2 --resume must
lr=0.1,0.2 --name a/b
lr=0.1,0.2 --name
lr=0.1,0.2 --name one --name two
lr=0.1,0.2 --batch-size=64
lr=0.1,0.2 --epochs 3 --qiet
--lr 0.1
lr=0.1, 0.2
lr
lr=[0.1,0.2]
'lr=0.1 seed=0'
-m lr=0.1,0.2
lr=0.1 --cfg job
lr=0.1,0.2 --secrets pin --save mine
lr=0.1,0.2 -- --epochs 3
""".strip().splitlines()


def said() -> Iterator[str]:
    """Yield each command line with its exit status and the first lines that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"train.py": SCRIPT, "app.py": APPLICATION, "config.yaml": CONFIG}.items():
            Path(folder, name).write_text(text)
        Path(folder, "points.csv").write_text("seed\n0\n1\n")
        commands = ForkedCommands(folder, process_environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1"))
        try:
            for program in PROGRAMS:
                for line in LINES:
                    words = [word.replace("'", "") for word in re.findall(r"(?:'[^']*'|[^\s'])+", line)]
                    done = commands.run(
                        ["sweep", *([program] if program else []), "--dry-run", *words], is_terminal=False
                    )
                    lines = (done.err or done.out).decode().replace(folder, "FOLDER").splitlines()
                    shown = [re.sub(r"-[0-9a-f]{8}\b", "-…", each) for each in lines if each][:MAX_LINES]
                    yield "\n".join([f"$ {' '.join(filter(None, (program, line)))}", f"  status {done.status}", *shown])
        finally:
            commands.end()


@pytest.mark.skipif(os.name == "nt", reason="forks")
def test_what_each_command_line_says() -> None:
    assert list(said()) == SAID.read_text().split("\n\n")


def test_there_are_forty_for_each_kind_of_program() -> None:
    assert len(LINES) >= 40 and SAID.read_text().count("$ ") == len(LINES) * len(PROGRAMS)


if __name__ == "__main__":
    SAID.write_text("\n\n".join(said()))

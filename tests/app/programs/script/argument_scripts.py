"""Scripts that read `lr`, `batch size` and `shuffle` with each library, and print them as JSON."""

SHOW = "import json\ndef show(lr, batch_size, shuffle): print(json.dumps([lr, batch_size, shuffle]))\n"

SCRIPTS = {
    "argparse": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5, help="see --rate")
parser.add_argument("-b", "--batch-size", type=int, default=8)
parser.add_argument("--shuffle", action="store_true", help="GPU")
args = parser.parse_args()
show(args.lr, args.batch_size, args.shuffle)
""",
    "click": """
import click
@click.command()
@click.option("--lr", default=0.5)
@click.option("-b", "--batch-size", default=8)
@click.option("--shuffle/--no-shuffle", default=True)
def main(lr, batch_size, shuffle):
    show(lr, batch_size, shuffle)
main()
""",
    "typer": """
import typer
def main(lr: float = 0.5, batch_size: int = 8, shuffle: bool = True):
    show(lr, batch_size, shuffle)
typer.run(main)
""",
    "tyro": """
import tyro
def main(lr: float = 0.5, batch_size: int = 8, shuffle: bool = True):
    show(lr, batch_size, shuffle)
tyro.cli(main)
""",
    "absl": """
from absl import app, flags
flags.DEFINE_float("lr", 0.5, "rate")
flags.DEFINE_integer("batch_size", 8, "size")
flags.DEFINE_boolean("shuffle", True, "whether")
def main(_):
    show(flags.FLAGS.lr, flags.FLAGS.batch_size, flags.FLAGS.shuffle)
app.run(main)
""",
    "jsonargparse": """
from jsonargparse import CLI
def main(lr: float = 0.5, batch_size: int = 8, shuffle: bool = True):
    show(lr, batch_size, shuffle)
CLI(main)
""",
    "fire": """
import fire
def main(lr=0.5, batch_size=8, shuffle=True):
    show(lr, batch_size, shuffle)
fire.Fire(main)
""",
    "transformers": """
from dataclasses import dataclass
from transformers import HfArgumentParser
@dataclass
class Options:
    lr: float = 0.5
    batch_size: int = 8
    shuffle: bool = True
(options,) = HfArgumentParser(Options).parse_args_into_dataclasses()
show(options.lr, options.batch_size, options.shuffle)
""",
}

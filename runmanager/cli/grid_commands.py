"""The commands that pass all options to the built-in job, for their help: what they take."""

from typing import Any

from runmanager.cli.fixed_arguments import FixedArgumentsCommand
from runmanager.cli.repeated_options import UniqueOptionsCommand

__all__ = ["DemoCommand", "DuelCommand"]

_OF_ALL = {
    "--dry-run": "Show the plan, and run nothing.",
    "--quiet": "Show only what went wrong.",
    "--secrets NAMES": "Further settings whose text is masked in what is written, as pin,pat.",
}
_OF_GRIDS = {
    "--restore": "Run cells again that `runmanager rm` removed.",
    "--zip NAMES": "Axes that advance together, such as lr,batch_size. Repeatable.",
    "--points FILE": "A YAML, JSON or CSV file of explicit points, combined with the axes.",
    "--exclude CONDITION": "Leave out the cells that meet it: 'lr>0.1 and batch_size<100'.",
    "--save NAME": "Write the grid to conf/experiment/NAME.yaml, and run nothing.",
    "--notify URL": "Where apprise sends a message when the sweep ends.",
}


class DuelCommand(FixedArgumentsCommand):
    """`runmanager duel`."""

    passed_on = _OF_ALL

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage: the sides are the first words."""
        assert self.options_metavar is not None, "it is given where the command is registered"
        return [self.options_metavar]


class DemoCommand(UniqueOptionsCommand):
    """`runmanager demo`."""

    passed_on = _OF_ALL | _OF_GRIDS

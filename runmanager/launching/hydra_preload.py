"""What the forkserver needs beside an application's own modules, so that its runs find it done. Imported for that."""

from omegaconf.grammar_parser import parse

import runmanager.launching.hydra_launcher  # noqa: F401  # a run's first lines are there

# The parser of interpolations learns its grammar from the first ones that it reads: 15 ms, in each run.
for _text in ("${oc.env:NAME,value}", "${now:%Y-%m-%d_%H-%M-%S}", "${group.name}/${other}"):
    parse(_text)

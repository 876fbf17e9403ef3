"""Imports of the forkserver that every Hydra job needs. Imported for its effect."""

from omegaconf.grammar_parser import parse

import runmanager.launching.hydra_launcher  # noqa: F401  # runs the jobs
from runmanager.launching.hydra_internals import keep_imported_main_quiet

keep_imported_main_quiet()  # before the server and its forks import the driver's main module

# The parser of interpolations builds its tables when it first parses: 15 ms in each run.
for _text in (
    "${oc.env:NAME,value}",
    "${now:%Y-%m-%d_%H-%M-%S}",
    "${group.name}/${other}",
    "${hydra.runtime.output_dir}/${hydra.job.name}.log",  # of each job's logging
):
    parse(_text)

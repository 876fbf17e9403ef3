"""What the forkserver imports before it forks the first run. Imported for its effect, in the forkserver only.

Imports only: tensor arithmetic here would start OpenMP's threads, which a fork does not carry over, and a look at CUDA
would spoil it in every run.
"""

import importlib
import logging
import os

from runmanager.launching.child import PRELOAD_VARIABLE
from runmanager.launching.lifeline import die_with_parent

die_with_parent()
for _name in filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(",")):
    try:
        importlib.import_module(_name)
    except (Exception, SystemExit):  # a run that needs it will say what is wrong; the forkserver must live
        logging.getLogger(__name__).debug("could not preload %s", _name, exc_info=True)

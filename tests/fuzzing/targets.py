"""Every parser that is fuzzed."""

from collections.abc import Mapping

from .foreign_files import TARGETS as OF_OTHER_PROGRAMS
from .stored_files import TARGETS as STORED
from .target import Target
from .words import TARGETS as WORDS

__all__ = ["TARGETS"]

TARGETS: Mapping[str, Target] = {**STORED, **OF_OTHER_PROGRAMS, **WORDS}
"""By the name of their folder in corpus/."""

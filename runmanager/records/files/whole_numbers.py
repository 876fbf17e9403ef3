"""Whole numbers in the files of runs and sweeps: 64 bits hold every count, and each converts to a float."""

from typing import Annotated

import msgspec

__all__ = ["MAX_INT64", "Int64"]

MAX_INT64 = 2**63 - 1

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=MAX_INT64)]

"""Whole numbers in the files of runs and sweeps: 64 bits hold every count, and each converts to a float."""

from typing import Annotated

import msgspec

__all__ = ["Int64"]

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

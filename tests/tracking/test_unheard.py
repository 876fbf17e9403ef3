"""A worker's death while a run is brought to its end."""

import os
import signal
from typing import Any

import pytest

from runmanager.tracking.unheard import children_unheard


def test_a_worker_s_death_breaks_nothing_off_and_is_heard_again_afterwards() -> None:
    def raises(number: int, frame: Any) -> None:
        raise RuntimeError("a worker has died")

    earlier = signal.signal(signal.SIGCHLD, raises)
    try:
        with children_unheard():
            os.kill(os.getpid(), signal.SIGCHLD)
        with pytest.raises(RuntimeError, match="a worker has died"):
            os.kill(os.getpid(), signal.SIGCHLD)
    finally:
        signal.signal(signal.SIGCHLD, earlier)

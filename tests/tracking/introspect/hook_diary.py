"""Hooks that record their calls."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch.nn.modules import module as modules
from torch.optim.optimizer import register_optimizer_step_post_hook


class HookDiary:
    """Counts calls, and cannot be copied, as it has a lock."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self._lock = threading.Lock()

    def note(self, event: str, *_: object) -> None:
        with self._lock:
            self.calls[event] += 1

    def __call__(self, *_: object) -> None:
        self.note("object")


@contextmanager
def global_hooks(diary: HookDiary) -> Iterator[None]:
    """Register hooks for all modules and all optimisers."""
    with ExitStack() as handles:
        for register, event in (
            (modules.register_module_forward_pre_hook, "any forward"),
            (modules.register_module_forward_hook, "any forward end"),
            (modules.register_module_full_backward_pre_hook, "any backward"),
            (register_optimizer_step_post_hook, "any step"),
        ):
            handles.callback(register(partial(diary.note, event)).remove)
        yield

"""The loss buffer: sums and logged losses, in epochs of any length, with loss tensors that may be reused."""

import pytest
import torch

from runmanager.tracking.epoch_metrics.loss_buffer import LossBuffer


def filled(
    count: int, *, log_every: int = 0, steps_before: int = 0, samples: int = 2, device: str = "cpu"
) -> LossBuffer:
    """Return a buffer with losses 1, 2, … of `samples` samples each."""
    losses = LossBuffer(log_every=log_every, steps_before=steps_before)
    for number in range(1, count + 1):
        losses.add(torch.tensor(float(number), device=device), samples)
    return losses


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1000])
def test_the_sum_weights_losses_by_their_samples(count: int) -> None:
    assert filled(count).total() == count * (count + 1)


def test_batches_of_changing_sizes_are_weighted_separately() -> None:
    losses = LossBuffer()
    for number in range(300):
        losses.add(torch.tensor(float(number)), number % 3)
    assert losses.total() == sum(number * (number % 3) for number in range(300))


@pytest.mark.parametrize(("count", "log_every", "steps_before"), [(300, 1, 0), (300, 7, 5), (500, 200, 150), (3, 5, 0)])
def test_every_nth_step_of_the_run_is_logged_across_buffers(count: int, log_every: int, steps_before: int) -> None:
    logged = filled(count, log_every=log_every, steps_before=steps_before).logged()
    steps = [step for step in range(steps_before + 1, steps_before + count + 1) if step % log_every == 0]
    assert list(logged.steps) == steps
    assert list(logged.values) == [step - steps_before for step in steps]


def test_reading_in_between_changes_nothing() -> None:
    losses = LossBuffer(log_every=2)
    for number in range(1, 401):
        losses.add(float(number), 1)
        if number in (3, 128, 200):
            assert losses.total() == number * (number + 1) / 2
    assert losses.total() == 400 * 401 / 2
    assert list(losses.logged().steps) == list(losses.logged().values) == list(range(2, 401, 2))


def test_numbers_and_tensors_may_alternate() -> None:
    losses = LossBuffer(log_every=1)
    for number in range(300):
        losses.add(float(number) if number % 3 else torch.tensor([float(number)]), 1)
    assert losses.total() == sum(range(300))
    assert list(losses.logged().values) == list(range(300))


def test_a_loss_is_copied_before_its_tensor_is_reused() -> None:
    losses, static = LossBuffer(log_every=1), torch.zeros(())
    for number in (1.0, 2.0, 3.0):
        static.fill_(number)  # like a replayed CUDA graph
        losses.add(static, 1)
    assert losses.total() == 6.0 and list(losses.logged().values) == [1.0, 2.0, 3.0]


def test_a_long_epoch_holds_one_buffer_on_the_device() -> None:
    """If each loss were kept, a million steps would leave a million tensors."""
    created: list[torch.Size] = []

    class Counting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if func is torch.zeros:
                created.append(torch.Size(args[0]))
            return func(*args, **(kwargs or {}))

    with Counting():
        filled(2000, device="meta")
    assert created == [(128,), ()]


def test_an_evaluation_in_inference_mode_may_end_outside_it() -> None:
    losses = LossBuffer()
    with torch.inference_mode():
        for _ in range(200):
            losses.add(torch.tensor(1.0), 1)
    losses.add(torch.tensor(1.0), 1)
    assert losses.total() == 201.0

"""The private names of torch that the package uses: the versions they were checked against, and what each one does."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

import runmanager
from runmanager.tracking.torch_internals import (
    CALL_HOOK_TABLES,
    CHECKED_VERSIONS,
    GLOBAL_HOOK_TABLES,
    STATE_DICT_HOOK_TABLES,
    InstanceNormBase,
    NormBase,
    TorchDispatchMode,
    accepts_step_hooks,
    backward_pass,
    clean_up_failed_capture,
    compilation_seconds,
    compiled_module,
    is_compiled,
    module_hooks,
    scale_tensor,
    storage_id,
    tree_leaves,
    tree_map_only,
    written_arguments,
)


def test_the_installed_torch_is_one_that_was_checked() -> None:
    installed = ".".join(torch.__version__.split(".")[:2])
    assert installed in CHECKED_VERSIONS, (
        f"torch {installed} was not checked: follow the docstring of runmanager/tracking/torch_internals.py"
    )


def test_no_other_module_uses_private_modules_of_torch() -> None:
    attribute, imported = r"(?<!\")\btorch\.[\w.]*\b_[a-z]\w*", r"^from torch\S* import .*\b_[A-Za-z]"
    private = re.compile(f"{attribute}|{imported}", re.MULTILINE)
    sources = {path.name: path.read_text() for path in Path(runmanager.__file__).parent.rglob("*.py")}
    users = {name for name, source in sources.items() if private.search(source.replace("__version__", ""))}
    assert users == {"torch_internals.py"}


def test_a_dispatch_mode_sees_operators_and_which_arguments_they_write() -> None:
    written: dict[str, list[str]] = {}

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            written[func.overloadpacket.__name__] = [name for name, _ in written_arguments(func, args)]
            return func(*args, **(kwargs or {}))

    with Mode():  # type: ignore[no-untyped-call]
        left, right = torch.ones(2), torch.ones(2)
        left.add_(right)
        torch._foreach_add_([left], [right])
    assert written["add_"] == ["self"] and written["_foreach_add_"] == ["self"]
    assert written["ones"] == []


def test_trees_are_walked() -> None:
    tensor = torch.ones(2)
    assert tree_leaves({"a": [1, tensor], "b": ()}) == [1, tensor]
    assert tree_map_only(torch.Tensor, lambda each: each.shape, [1, (tensor,)]) == [1, (torch.Size([2]),)]


def test_views_share_a_storage_id_without_an_address() -> None:
    tensor, other = torch.empty(4, device="meta"), torch.empty(4, device="meta")
    assert tensor.data_ptr() == other.data_ptr() == 0
    assert storage_id(tensor) == storage_id(tensor[1:]) != storage_id(other)


def test_every_hook_table_of_a_module_is_found() -> None:
    linear = nn.Linear(1, 1)
    for table in (*CALL_HOOK_TABLES, *STATE_DICT_HOOK_TABLES):
        assert isinstance(vars(linear)[table], dict) and not module_hooks(linear, table)
    linear.register_forward_pre_hook(lambda *_: None)
    linear.register_forward_hook(lambda *_: None)
    linear.register_full_backward_pre_hook(lambda *_: None)
    linear.register_full_backward_hook(lambda *_: None)
    linear.register_state_dict_pre_hook(lambda *_: None)
    linear.register_state_dict_post_hook(lambda *_: None)
    linear.register_load_state_dict_pre_hook(lambda *_: None)
    linear.register_load_state_dict_post_hook(lambda *_: None)
    for table in (*CALL_HOOK_TABLES, *STATE_DICT_HOOK_TABLES):
        assert len(module_hooks(linear, table)) == 1


def test_global_hooks_are_called_from_their_tables() -> None:
    network, calls = nn.Linear(1, 1), []
    optimizer = torch.optim.SGD(network.parameters())
    handles = [
        register_module_forward_hook(lambda *_: calls.append("module")),
        register_optimizer_step_post_hook(lambda *_: calls.append("optimizer")),
    ]
    try:
        held = [(table, dict(table)) for table in GLOBAL_HOOK_TABLES]
        assert sum(len(hooks) for _, hooks in held) == 2
        for table, _ in held:
            table.clear()
        network(torch.ones(1)), optimizer.step()
        assert calls == []
        for table, hooks in held:
            table.update(hooks)
        network(torch.ones(1)), optimizer.step()
        assert calls == ["module", "optimizer"]
    finally:
        for handle in handles:
            handle.remove()


def test_the_module_inside_a_compiled_one_is_found() -> None:
    network = nn.Linear(1, 1)
    compiled = torch.compile(network)
    assert isinstance(compiled, nn.Module)
    assert compiled_module(compiled) is network and compiled_module(network) is None


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(1), nn.SyncBatchNorm(1), nn.LazyBatchNorm2d(), nn.InstanceNorm2d(1)])
def test_layers_that_normalise_by_their_batch_have_one_base(layer: nn.Module) -> None:
    assert isinstance(layer, NormBase)
    assert isinstance(layer, InstanceNormBase) == isinstance(layer, nn.InstanceNorm2d)


def test_the_scale_is_a_tensor_after_its_first_use() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    assert scale_tensor(scaler) is None
    scaler.scale(torch.ones(1))
    scale = scale_tensor(scaler)
    assert scale is not None and scale.item() == 8.0


def test_the_cuda_allocator_has_what_a_failed_capture_needs() -> None:
    assert callable(clean_up_failed_capture)
    assert callable(torch.Generator.graphsafe_set_state) and hasattr(torch.cuda, "default_generators")
    if torch.version.cuda is not None:  # a build without CUDA lacks both; tests/gpu makes a capture fail
        assert callable(torch._C._cuda_endAllocateToPool) and callable(torch._C._cuda_releasePool)


def test_each_backward_pass_has_a_number() -> None:
    numbers: list[int | None] = [backward_pass()]
    tensor = torch.ones(2, requires_grad=True)
    tensor.register_hook(lambda _: numbers.append(backward_pass()))
    for _ in range(2):
        tensor.sum().backward()  # type: ignore[no-untyped-call]  # untyped in torch
    assert numbers[0] is None and backward_pass() is None
    assert len(set(numbers)) == 3


def test_a_wrapper_of_an_optimiser_may_accept_no_hooks() -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self) -> None:
            pass  # as wrappers do that delegate to another optimiser

    assert accepts_step_hooks(torch.optim.SGD([torch.ones(2)]))
    assert not accepts_step_hooks(Wrapper())


def test_modules_that_run_compiled_code() -> None:
    outside, inside = nn.Linear(1, 1), nn.Linear(1, 1)
    inside.compile()
    assert is_compiled(torch.compile(outside)) and is_compiled(inside)  # type: ignore[arg-type]  # it is a module
    assert not is_compiled(outside) and compiled_module(inside) is None


def test_the_seconds_of_compilation_are_counted() -> None:
    before = compilation_seconds()
    torch.compile(lambda values: values * 3 + 1, backend="eager")(torch.ones(3))
    assert compilation_seconds() > before

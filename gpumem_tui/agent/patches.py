"""Every change that we make to foreign code: one function for each, the original kept by ``weave``.

All are installed right after the user's ``import torch`` and never removed. Each is
switched by one flag (``phases.on``), so that nothing of the user's is recompiled.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, Callable, List

from .guard import contain
from .weave import weave

if TYPE_CHECKING:
    from .phases import Phases
    from .process import Monitored


def patch_torch(torch: Any, phases: "Phases") -> List[str]:
    """Install all patches of torch itself; the names of those that could not be."""
    failed = []
    for patch in PATCHES:
        try:
            patch(torch, phases)
        except (ValueError, SyntaxError, AttributeError, OSError) as error:  # noqa: PERF203
            failed.append(patch.__name__)
            contain("patch %s" % patch.__name__, error)
    return failed


def compiling(torch: Any) -> Callable[[], bool]:
    """Whether torch.compile is tracing the calling frame; a constant to the tracer itself."""
    compiler = getattr(torch, "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        found = getattr(compiler, name, None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return lambda: False


def module_calls(torch: Any, phases: "Phases") -> None:
    """``nn.Module.__call__``: a call of a root module is a forward or an evaluation."""
    module = torch.nn.Module
    module.__call__ = weave(
        module.__call__, phases.enter_module, phases.leave_module, compiling(torch), everything=True
    )


def backward(torch: Any, phases: "Phases") -> None:
    """``torch.autograd.backward``, where every ``Tensor.backward`` ends up, and ``torch.autograd.grad``."""
    for name in ("backward", "grad"):
        woven = weave(getattr(torch.autograd, name), phases.enter_backward, phases.leave, compiling(torch))
        setattr(torch.autograd, name, woven)


def optimizer_steps(torch: Any, phases: "Phases") -> None:
    """``Optimizer.profile_hook_step``, the decorator that every optimizer class puts around its ``step``."""
    optimizer = torch.optim.Optimizer
    decorator = optimizer.profile_hook_step
    optimizer.profile_hook_step = staticmethod(
        weave(decorator, phases.enter_optimizer, phases.leave_optimizer, compiling(torch), inner="wrapper")
    )


def loading(torch: Any, phases: "Phases") -> None:
    """``torch.load``, ``Module.load_state_dict`` and ``Module._apply`` (``to``, ``cuda``, ``half``)."""
    quiet = compiling(torch)
    woven = weave(torch.load, phases.enter_load, phases.leave_covering, quiet)
    torch.load = torch.serialization.load = woven
    module = torch.nn.Module
    for name in ("load_state_dict", "_apply"):
        setattr(module, name, weave(getattr(module, name), phases.enter_load, phases.leave_covering, quiet))


def saving(torch: Any, phases: "Phases") -> None:
    """``torch.save``."""
    woven = weave(torch.save, phases.enter_save, phases.leave_covering, compiling(torch))
    torch.save = torch.serialization.save = woven


def graphs(torch: Any, phases: "Phases") -> None:
    """``CUDAGraph``: capture as one phase, each replay as one."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    if graph is None or "replay" not in vars(graph):
        return  # a build without graphs
    quiet = compiling(torch)
    graph.replay = weave(graph.replay, phases.enter_replay, phases.leave, quiet)
    graph.capture_begin = weave(graph.capture_begin, lambda graph: graph, phases.capture_began, quiet)
    graph.capture_end = weave(graph.capture_end, phases.capture_ends, lambda token, error: None, quiet)


def markers(torch: Any, phases: "Phases") -> None:
    """``empty_cache`` and changes of the allocator's settings: moments that explain a curve.

    Patched where they enter C++, whoever calls them.
    """
    entries = {
        "_cuda_emptyCache": "empty_cache",
        "_accelerator_emptyCache": "empty_cache",
        "_cuda_cudaCachingAllocator_set_allocator_settings": "allocator settings",
        "_accelerator_setAllocatorSettings": "allocator settings",
    }
    for entry, name in entries.items():
        original = getattr(torch._C, entry, None)
        if original is not None:
            setattr(torch._C, entry, _marking(original, name, phases))


def _marking(original: Callable[..., Any], name: str, phases: "Phases") -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any) -> Any:
        result = original(*args)
        phases.mark(name)
        return result

    return call


def transformers_models(module: Any, phases: "Phases") -> None:
    """``PreTrainedModel.from_pretrained`` and ``save_pretrained`` of Hugging Face."""
    model, quiet = module.PreTrainedModel, compiling(sys.modules["torch"])
    load = weave(model.from_pretrained.__func__, phases.enter_load, phases.leave_covering, quiet)
    model.from_pretrained = classmethod(load)
    model.save_pretrained = weave(model.save_pretrained, phases.enter_save, phases.leave_covering, quiet)


def transformers_generation(module: Any, phases: "Phases") -> None:
    """``generate`` of Hugging Face, below the decorators that it is given."""
    mixin, quiet = module.GenerationMixin, compiling(sys.modules["torch"])
    decorated = mixin.generate
    plain = inspect.unwrap(decorated)
    woven = weave(plain, phases.enter_generate, phases.leave_generate, quiet)
    if decorated is plain:
        mixin.generate = woven
        return
    layer = decorated
    while layer.__wrapped__ is not plain:
        layer = layer.__wrapped__
    for cell in layer.__closure__ or ():
        if cell.cell_contents is plain:
            cell.cell_contents = woven


def safetensors_files(module: Any, phases: "Phases") -> None:
    """``safetensors.torch.load_file`` and ``save_file``."""
    quiet = compiling(sys.modules["torch"])
    module.load_file = weave(module.load_file, phases.enter_load, phases.leave_covering, quiet)
    module.save_file = weave(module.save_file, phases.enter_save, phases.leave_covering, quiet)


def process_groups(torch: Any, phases: "Phases") -> None:
    """``_update_default_pg``, the last act of ``init_process_group``: a marker, and the rank is known."""
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    if distributed is None:
        return  # a build without torch.distributed
    distributed._update_default_pg = weave(  # type: ignore[attr-defined]
        distributed._update_default_pg, lambda group: distributed, phases.on_process_group, compiling(torch)
    )


def custom_allocators(torch: Any, monitored: "Monitored") -> None:
    """Learn of allocators that may re-enter Python, and of the memory pools that use them.

    Another thread that reads counters while such an allocator runs would deadlock
    with it (the GIL against the allocator's mutex).
    """
    memory = torch.cuda.memory
    pluggable = getattr(memory, "CUDAPluggableAllocator", None)
    if pluggable is not None:
        pluggable.__init__ = _telling(pluggable.__init__, monitored)
    custom = getattr(torch._C, "_cuda_customAllocator", None)
    if custom is not None:
        torch._C._cuda_customAllocator = _telling(custom, monitored)
    use = getattr(memory, "use_mem_pool", None)
    if use is None:
        return

    @functools.wraps(use)
    @contextlib.contextmanager
    def use_mem_pool(pool: Any, device: Any = None) -> Any:
        guarded = getattr(pool, "allocator", None) is not None
        monitored.custom_pools += guarded
        try:
            with use(pool, device):
                yield
        finally:
            monitored.custom_pools -= guarded

    memory.use_mem_pool = use_mem_pool
    if getattr(torch.cuda, "use_mem_pool", None) is use:
        torch.cuda.use_mem_pool = use_mem_pool


def _telling(original: Callable[..., Any], monitored: "Monitored") -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        monitored.on_custom_allocator()
        return original(*args, **kwargs)

    return call


PATCHES = (
    module_calls, backward, optimizer_steps, loading, saving, graphs, markers, process_groups,
)  # fmt: skip
"""Patches of torch itself, in the order in which they are installed."""

AFTERWARDS = {
    "transformers.modeling_utils": transformers_models,
    "transformers.generation.utils": transformers_generation,
    "safetensors.torch": safetensors_files,
}
"""Patches of other libraries, each right after the user's own import of it."""

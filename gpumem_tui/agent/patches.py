"""Every change that we make to foreign code: one function for each, the original kept by ``weave``.

All are installed right after the user's ``import torch`` and never removed. Each is
switched by one flag (``phases.on``), so that nothing of the user's is recompiled.
"""

from __future__ import annotations

import contextlib
import functools
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
    for patch in (module_calls, backward, optimizer_steps, process_groups):
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
    module.__call__ = weave(module.__call__, phases.enter_module, phases.leave_module, compiling(torch))


def backward(torch: Any, phases: "Phases") -> None:
    """``torch.autograd.backward``, where every ``Tensor.backward`` ends up."""
    autograd = torch.autograd
    autograd.backward = weave(autograd.backward, phases.enter_backward, phases.leave, compiling(torch))


def optimizer_steps(torch: Any, phases: "Phases") -> None:
    """``Optimizer.profile_hook_step``, the decorator that every optimizer class puts around its ``step``."""
    optimizer = torch.optim.Optimizer
    decorator = optimizer.profile_hook_step
    optimizer.profile_hook_step = staticmethod(
        weave(decorator, phases.enter_optimizer, phases.leave_optimizer, compiling(torch), inner="wrapper")
    )


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

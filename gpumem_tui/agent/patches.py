"""Every change that we make to foreign code: one function for each, the original kept by ``weave``.

All are installed right after the user's ``import torch`` and never removed. Each is
switched by one flag (``phases.on``), so that nothing of the user's is recompiled.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable, List

from .guard import contain
from .weave import weave

if TYPE_CHECKING:
    from .phases import Phases


def patch_torch(torch: Any, phases: "Phases") -> List[str]:
    """Install all patches of torch itself; the names of those that could not be."""
    failed = []
    for patch in (module_calls, backward, optimizer_steps):
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


def process_groups(distributed: Any, phases: "Phases") -> None:
    """``torch.distributed.init_process_group``: a marker, and the moment when ranks are known."""
    module = sys.modules[distributed.init_process_group.__module__]
    original = distributed.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        phases.on_process_group(distributed)
        return result

    init_process_group.__doc__ = original.__doc__
    init_process_group.__wrapped__ = original  # type: ignore[attr-defined]
    distributed.init_process_group = init_process_group
    if getattr(module, "init_process_group", None) is original:
        module.init_process_group = init_process_group  # type: ignore[attr-defined]

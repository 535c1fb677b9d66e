"""Which phase a call of torch belongs to: from root modules, backward and optimizer steps to spans.

Called by the code woven into torch, on the user's threads, hence every entry is
contained and cheap. Knows nothing of files, devices or counters.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

from .guard import contained
from .spans import Span, Spans

NESTED = None
"""Token for "nothing to leave": a call within a root's."""


class _Here(threading.local):
    """What the calling thread is in."""

    inside = False
    """Within a root module's call."""


class Phases:
    """The automatic phases of this process. ``on`` False: every hook is a no-op."""

    def __init__(self, torch: Any) -> None:
        self.on = True
        self.spans: Optional[Spans] = None
        """None until this process has a journal."""
        self.wait_for_journal: Callable[[], Optional[Spans]] = lambda: None
        """Called when a span would begin and there is no journal yet."""
        self.on_device: Callable[[int], None] = lambda ordinal: None
        """Told the device of each span that begins."""
        self.on_group: Callable[[Any], None] = lambda distributed: None
        self._here = _Here()
        self._torch = torch
        self._grad_enabled = torch.is_grad_enabled
        self._graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self._stepped = True
        """An optimizer has stepped since the last training forward: the next one begins a step."""

    def forget(self) -> None:
        """In a forked child: no span of the parent's is open here, and none is ours."""
        self.spans = None
        self.on = True
        self._here = _Here()

    def _spans(self) -> Optional[Spans]:
        return self.spans if self.spans is not None else self.wait_for_journal()

    def _begin(self, device: Any, phase: str, name: str) -> Optional[Span]:
        """Begin a span on a device; None on the CPU, or where nothing is recorded."""
        if getattr(device, "type", "cpu") != "cuda":
            return NESTED
        spans = self._spans()
        if spans is None:
            return NESTED
        if device.index is not None:
            self.on_device(device.index)
        return spans.begin(phase, name)

    # --- root modules -------------------------------------------------------------------------

    def enter_module(self, module: Any) -> Optional[Span]:
        """At the call of any module. Only a root that owns parameters on a device begins a span."""
        here = self._here
        if here.inside or not self.on:
            return NESTED
        return self._enter_root(here, module)

    @contained("phase of a module")
    def _enter_root(self, here: _Here, module: Any) -> Optional[Span]:
        parameter = next(module.parameters(), None)
        if parameter is None or parameter.device.type != "cuda":
            return NESTED
        span = self._begin(parameter.device, *self._classify(module))
        here.inside = span is not None
        return span

    def _classify(self, module: Any) -> "tuple[str, str]":
        name = type(module).__name__
        if name in ("OptimizedModule", "DistributedDataParallel", "FullyShardedDataParallel"):
            inner = getattr(module, "_orig_mod", None) or getattr(module, "module", None)
            name = type(inner).__name__ if inner is not None else name
        if self._graph_task() != -1:
            return "recompute", name
        if self._grad_enabled() and module.training:
            spans = self._spans()
            if self._stepped and spans is not None:
                spans.step += 1
                self._stepped = False
            return "forward", name
        if module.training and not self._stepped:
            return "no-grad", name
        return "eval", name

    @contained("phase of a module")
    def leave_module(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of a root's call."""
        self._here.inside = False
        if self.spans is not None:
            self.spans.end(span, error)

    # --- backward and optimizer ---------------------------------------------------------------

    @contained("phase of backward")
    def enter_backward(self, tensors: Any) -> Optional[Span]:
        """At ``torch.autograd.backward``; a reentrant one is part of the outer."""
        if not self.on or self._graph_task() != -1:
            return NESTED
        first = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
        return self._begin(getattr(first, "device", None), "backward", "")

    @contained("phase of an optimizer")
    def enter_optimizer(self, arguments: Any) -> Optional[Span]:
        """At any ``Optimizer.step``; ``arguments`` are the wrapper's, the optimizer first."""
        if not self.on or not arguments:
            return NESTED
        groups = getattr(arguments[0], "param_groups", None) or [{}]
        parameters = groups[0].get("params") or [None]
        return self._begin(getattr(parameters[0], "device", None), "optimizer", type(arguments[0]).__name__)

    @contained("phase")
    def leave(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of backward."""
        if self.spans is not None:
            self.spans.end(span, error)

    @contained("phase of an optimizer")
    def leave_optimizer(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of an optimizer's step."""
        if self.spans is not None:
            self.spans.end(span, error)
        self._stepped = self._stepped or error is None

    @contained("process group")
    def on_process_group(self, distributed: Any, error: Optional[BaseException]) -> None:
        """After ``init_process_group``, or ``destroy_process_group``."""
        if error is None:
            self.on_group(distributed)

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
        """None until this process has a journal; set by ``want_journal``."""
        self.want_journal: Callable[[], Optional[Spans]] = lambda: None
        """Called when the first span begins."""
        self.on_group: Callable[[Any], None] = lambda distributed: None
        self._here = _Here()
        self._torch = torch
        self._grad_enabled = torch.is_grad_enabled
        self._graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self._stepped = True
        """An optimizer has stepped since the last training forward: the next one begins a step."""

    def _spans(self) -> Optional[Spans]:
        if self.spans is None and self.on:
            self.spans = self.want_journal()
            if self.spans is None:
                self.on = False
        return self.spans

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
        if parameter is None or parameter.device.type == "cpu":
            return NESTED
        spans = self._spans()
        if spans is None:
            return NESTED
        span = spans.begin(*self._classify(module, spans))
        here.inside = True
        return span

    def _classify(self, module: Any, spans: Spans) -> "tuple[str, str]":
        name = type(module).__name__
        if name in ("OptimizedModule", "DistributedDataParallel", "FullyShardedDataParallel"):
            inner = getattr(module, "_orig_mod", None) or getattr(module, "module", None)
            name = type(inner).__name__ if inner is not None else name
        if self._graph_task() != -1:
            return "recompute", name
        if self._grad_enabled() and module.training:
            if self._stepped:
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
        if getattr(getattr(first, "device", None), "type", "cpu") == "cpu":
            return NESTED
        spans = self._spans()
        return spans.begin("backward", "") if spans is not None else NESTED

    @contained("phase of an optimizer")
    def enter_optimizer(self, arguments: Any) -> Optional[Span]:
        """At any ``Optimizer.step``; ``arguments`` are the wrapper's, the optimizer first."""
        if not self.on or not arguments:
            return NESTED
        groups = getattr(arguments[0], "param_groups", None) or [{}]
        parameters = groups[0].get("params") or [None]
        if getattr(getattr(parameters[0], "device", None), "type", "cpu") == "cpu":
            return NESTED
        spans = self._spans()
        return spans.begin("optimizer", type(arguments[0]).__name__) if spans is not None else NESTED

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
    def on_process_group(self, distributed: Any) -> None:
        """After ``init_process_group``."""
        self.on_group(distributed)

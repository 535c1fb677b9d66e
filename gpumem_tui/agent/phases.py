"""Which phase a call of torch belongs to: from root modules, backward, optimizer and others to spans.

Called by the code woven into torch, on the user's threads, hence every entry is
contained and cheap. Knows nothing of files or counters.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

from .guard import contained
from .spans import Span, Spans
from .steps import Steps
from .wire import now_ns

NESTED = None
"""Token for "nothing to leave": a call within a phase that covers it."""

WRAPPERS = ("OptimizedModule", "DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")
"""Modules that only wrap another, whose name is the one that people know."""


ROOTS = ("forward", "eval", "no-grad", "prefill", "decode")
"""Phases of a root module's call: none is open on a thread on which a root is entered."""


class _Here(threading.local):
    """What the calling thread is in."""

    inside = False
    """Within a root module's call."""
    covered = False
    """Within load or save: what they call in turn is part of them."""
    generating = 0
    """Within ``generate``: 1 before its first forward, 2 after it."""


class Late:
    """Token of a phase that began before CUDA was initialised, if it was then initialised within."""

    __slots__ = ("at", "name", "phase")

    def __init__(self, phase: str, name: str) -> None:
        self.phase, self.name, self.at = phase, name, now_ns()


class Seen:
    """Objects by identity, without keeping them alive and without calling their own hash or equality."""

    def __init__(self) -> None:
        self._refs: Dict[int, Any] = {}

    def add(self, thing: Any) -> None:
        """Remember an object."""
        if thing not in self:
            self._refs[id(thing)] = weakref.ref(thing)

    def __contains__(self, thing: Any) -> bool:
        ref = self._refs.get(id(thing))
        return ref is not None and ref() is thing

    def living(self) -> List[Any]:
        """Those that still exist."""
        found = []
        for key, ref in list(self._refs.items()):
            thing = ref()
            if thing is None:
                self._refs.pop(key, None)
            else:
                found.append(thing)
        return found


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
        self.on_mark: Callable[[str, Optional[str]], None] = lambda name, detail: None
        self.on_inputs: Callable[[str, str, Any, Any], None] = lambda phase, name, args, kwargs: None
        """Told what entered a root module."""
        self.on_step_end: Callable[[], None] = lambda: None
        """Told after each optimizer step, on the user's thread."""
        self.on_first: Callable[[], None] = lambda: None
        """Told that a span begins, on whatever device is current: it may be the first to use one."""
        self.on_look: Callable[[], None] = lambda: None
        """Asks which devices have come into use."""
        self.roots = Seen()
        """Root modules, for what allocated memory is made of."""
        self.optimizers = Seen()
        self.steps = Steps()
        self._here = _Here()
        self._torch = torch
        self._grad_enabled = torch.is_grad_enabled
        self._graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self._trained = Seen()
        self._captures: Dict[int, Span] = {}

    def heal(self) -> None:
        """An interrupt has come out of a hook: what it had begun to note on this thread may never be left."""
        self._here.inside = False
        self._here.covered = False

    def forget(self) -> None:
        """In a forked child: no span of the parent's is open here, and none is ours."""
        self.spans = None
        self.on = True
        self._here = _Here()
        self._captures = {}

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
        spans.step = self.steps.count
        return spans.begin(phase, name)

    @contained("end of a phase")
    def leave(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of any phase."""
        if self.spans is not None:
            self.spans.end(span, error)

    # --- root modules -------------------------------------------------------------------------

    def enter_module(self, module: Any, args: Any, kwargs: Any) -> Optional[Span]:
        """At the call of any module. Only a root that owns parameters on a device begins a span."""
        here = self._here
        if here.inside or not self.on:
            return NESTED
        return self._enter_root(here, module, args, kwargs)

    @contained("phase of a module")
    def _enter_root(self, here: _Here, module: Any, args: Any, kwargs: Any) -> Optional[Span]:
        parameter = next(module.parameters(), None)
        if parameter is None or parameter.device.type != "cuda":
            return NESTED
        if self.spans is not None and self.spans.stack():
            self.spans.end_stale(ROOTS)
        phase, name = self._classify(here, module)
        span = self._begin(parameter.device, phase, name)
        here.inside = span is not None
        if span is not None:
            self.roots.add(module)
            self.on_inputs(phase, name, args, kwargs)
        return span

    def _classify(self, here: _Here, module: Any) -> Tuple[str, str]:
        core = module
        while type(core).__name__ in WRAPPERS:
            inner = getattr(core, "_orig_mod", None) or getattr(core, "module", None)
            if inner is None:
                break
            core = inner
        name = type(core).__name__
        if self._graph_task() != -1:
            return "recompute", name
        if here.generating:
            phase = "prefill" if here.generating == 1 else "decode"
            here.generating = 2
            return phase, name
        if not self._grad_enabled():
            # Teachers never train while others do; a model that trains is within its own step.
            teacher = self.steps.count > 0 and not module.training and core not in self._trained
            return ("no-grad" if self.steps.within or teacher else "eval"), name
        if not module.training:
            return "eval", name
        self.steps.forward()
        self._trained.add(core)
        return "forward", name

    @contained("phase of a module")
    def leave_module(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of a root's call."""
        self._here.inside = False
        if self.spans is not None:
            self.spans.end(span, error)

    # --- backward and optimizer ---------------------------------------------------------------

    @contained("phase of backward")
    def enter_backward(self, tensors: Any) -> Optional[Span]:
        """At ``torch.autograd.backward`` and ``grad``; a reentrant one is part of the outer."""
        if not self.on or self._graph_task() != -1:
            return NESTED
        if self.spans is not None and self.spans.stack():
            self.spans.end_stale(("backward",))
        first = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
        return self._begin(getattr(first, "device", None), "backward", "")

    @contained("phase of an optimizer")
    def enter_optimizer(self, arguments: Any) -> Optional[Tuple[Span, Any, int]]:
        """At any ``Optimizer.step``; ``arguments`` are the wrapper's, the optimizer first."""
        if not self.on or not arguments:
            return NESTED
        if self._graph_task() == -1:
            self._here.inside = (
                False  # no model steps an optimizer within its forward: an interrupt left this
            )
            if self.spans is not None and self.spans.stack():
                self.spans.end_stale(("optimizer",))
        groups = getattr(arguments[0], "param_groups", None) or [{}]
        parameters = groups[0].get("params") or [None]
        device = getattr(parameters[0], "device", None)
        span = self._begin(device, "optimizer", type(arguments[0]).__name__)
        # By its first parameter: an optimizer that is made anew each time is the same one.
        return (span, arguments[0], id(parameters[0])) if span is not None else NESTED

    @contained("phase of an optimizer")
    def leave_optimizer(self, token: Tuple[Span, Any, int], error: Optional[BaseException]) -> None:
        """At the end of an optimizer's step."""
        span, optimizer, identity = token
        if self.spans is not None:
            self.spans.end(span, error)
        if error is None:
            self.optimizers.add(optimizer)
            self.steps.stepped(identity)
            self.on_step_end()

    # --- load, save, generate, graphs ---------------------------------------------------------

    @contained("phase load")
    def enter_load(self, what: Any) -> Optional[Any]:
        """At ``torch.load``, ``load_state_dict``, ``Module.to``; the outermost one covers the others."""
        name = type(what).__name__ if hasattr(what, "parameters") else ""
        return self._enter_covering("load", name, late=True)

    @contained("phase save")
    def enter_save(self, what: Any) -> Optional[Any]:
        """At ``torch.save``, ``save_pretrained``."""
        return self._enter_covering(
            "save", type(what).__name__ if hasattr(what, "parameters") else "", late=False
        )

    def _enter_covering(self, phase: str, name: str, late: bool) -> Optional[Any]:
        here = self._here
        if here.covered or here.inside or not self.on:
            return NESTED
        spans = self._spans()
        if spans is None and not late:
            return NESTED
        here.covered = True
        if spans is None:
            return Late(phase, name)
        self.on_first()
        spans.step = self.steps.count
        return spans.begin(phase, name)

    @contained("phase load or save")
    def leave_covering(self, token: Any, error: Optional[BaseException]) -> None:
        """At the end of load or save."""
        self._here.covered = False
        spans = self._spans()
        if spans is None:
            return
        self.on_look()
        if isinstance(token, Late):
            spans.late(token.phase, token.name, token.at, error)
        else:
            spans.end(token, error)

    @contained("phase generate")
    def enter_generate(self, model: Any) -> Optional[Span]:
        """At ``generate`` of Hugging Face: prefill is its first forward, decode are the later ones."""
        spans = self._spans()
        if not self.on or spans is None or self._here.generating:
            return NESTED
        self._here.generating = 1
        return spans.begin("generate", type(model).__name__)

    @contained("phase generate")
    def leave_generate(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of ``generate``."""
        self._here.generating = 0
        if self.spans is not None:
            self.spans.end(span, error)

    @contained("phase graph replay")
    def enter_replay(self, graph: Any) -> Optional[Span]:
        """At ``CUDAGraph.replay``: no module is called in it."""
        spans = self._spans()
        if not self.on or spans is None or self._here.inside:
            return NESTED
        return spans.begin("graph replay", "")

    @contained("phase graph capture")
    def capture_began(self, graph: Any, error: Optional[BaseException]) -> None:
        """After ``CUDAGraph.capture_begin``."""
        spans = self._spans()
        if self.on and spans is not None and error is None:
            self._captures[id(graph)] = spans.begin("graph capture", "")

    @contained("phase graph capture")
    def capture_ends(self, graph: Any) -> None:
        """Before ``CUDAGraph.capture_end``."""
        span = self._captures.pop(id(graph), None)
        if span is not None and self.spans is not None:
            self.spans.end(span, None)

    # --- the user's own, and markers ----------------------------------------------------------

    @contained("the user's phase")
    def enter_named(self, name: str) -> Optional[Span]:
        """``gpumem_tui.phase(name)``."""
        spans = self._spans()
        if not self.on or spans is None:
            return NESTED
        self.on_first()
        spans.step = self.steps.count
        span = spans.begin(name, "")
        span.users = True
        return span

    @contained("process group")
    def on_process_group(self, distributed: Any, error: Optional[BaseException]) -> None:
        """After ``init_process_group``, or ``destroy_process_group``."""
        if error is None:
            self.on_group(distributed)

    @contained("mark")
    def mark(self, name: str, detail: Optional[str] = None) -> None:
        """A moment worth a tick on the axis."""
        self.on_mark(name, detail)

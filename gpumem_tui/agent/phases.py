"""Which phase a call of torch belongs to: from root modules, backward, optimizer and others to spans.

Called by the code woven into torch, on the user's threads, hence every entry is
contained and cheap. Knows nothing of files or counters. What only moves or replays
is in ``transfers`` and ``graphs``, what calls models in turn in ``regions``, steps of what
is no optimizer in ``engines``, and the user's own phases in ``named``.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from typing import Any, Callable, List, Optional, Set, Tuple

from .engines import Engines
from .graphs import Graphs
from .guard import contained
from .here import NESTED, Here
from .named import Named
from .regions import Regions
from .seen import Model, Roots, Seen, core_of, known_name, module_of
from .spans import Span, Spans
from .steps import Steps
from .transfers import Transfers
from .weave import entered

MOST_OPTIMIZERS = 64
"""Optimizers that may wait to be looked at."""

ROOTS = ("forward", "eval", "no-grad", "prefill", "decode")
"""Phases of a root module's call."""

MODULES = (*ROOTS, "recompute")

HOLDERS = {
    **dict.fromkeys(MODULES, frozenset(("enter_module", "enter_recompute"))),
    "backward": frozenset(("enter_backward", "enter_grad")),
    "optimizer": frozenset(("enter_optimizer", "enter_engine")),
}
"""By phase: what a function was woven with that is still to end a span of it."""

_Step = Tuple[Span, Any, Optional[int]]
"""An optimizer's step: its span, the optimizer, and by what it is known; None within a model's call."""


def _ordinal_of(tensor: Any) -> Optional[int]:
    """The device that a tensor is on; None for one that is on none, and for what is no tensor."""
    return tensor.get_device() if getattr(tensor, "is_cuda", False) else None


def _first_parameter(optimizer: Any) -> Any:
    """By it an optimizer is known: one that is made anew each time is the same one."""
    groups = getattr(optimizer, "param_groups", None) or [{}]
    return (groups[0].get("params") or [None])[0]


class Phases:
    """The automatic phases of this process. ``on`` False: every hook is a no-op."""

    def __init__(self, torch: Any) -> None:
        self.on = True
        self.spans: Optional[Spans] = None
        """None until this process has a journal."""
        self.wait_for_journal: Callable[[], Optional[Spans]] = lambda: None
        """Called when a span would begin and there is no journal yet."""
        self.on_device: Callable[[int], None] = lambda ordinal: None
        """Told the device of a span that begins, the first time."""
        self._devices: Set[int] = set()
        """Of spans that have begun."""
        self.on_group: Callable[[Any], None] = lambda distributed: None
        self.on_mark: Callable[[str, Optional[str]], None] = lambda name, detail: None
        self.on_inputs: Callable[[str, str, Any, Any], None] = lambda phase, name, args, kwargs: None
        """Told what entered a root module."""
        self.on_step_end: Callable[[], None] = lambda: None
        """Told after each optimizer step, on the user's thread."""
        self.on_optimizer: Callable[[Any], None] = lambda optimizer: None
        """Told of a new optimizer, at the first backward after it was made."""
        self._made: List[Any] = []
        self.on_first: Callable[[], None] = lambda: None
        """Told that a span begins, on whatever device is current: it may be the first to use one."""
        self.on_look: Callable[[], None] = lambda: None
        """Asks which devices have come into use."""
        self.roots = Seen()
        """Root modules, for what allocated memory is made of."""
        self.optimizers = Seen()
        self.caches = Seen()
        """Key-value caches of Hugging Face."""
        self._known = Roots()
        self.steps = Steps()
        self.here = Here()
        self._torch = torch
        self.grad_enabled: Callable[[], bool] = torch.is_grad_enabled
        self._unseen = getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)
        """Within it, reading a tensor calls no ``__torch_function__`` of the user's classes or modes."""
        self.graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        """Gives another number than -1 within a backward."""
        self.transfers = Transfers(self)
        self.graphs = Graphs(self)
        self.regions = Regions(self)
        self.engines = Engines(self)
        self.named = Named(self)

    def heal(self) -> None:
        """An interrupt has come out of a hook: what it had begun to note on this thread may never be left."""
        self.here.inside = False
        self.here.covered = False
        self.here.stepping = False
        self.here.checkpointing = False

    def forget(self) -> None:
        """In a forked child: no span of the parent's is open here, and none is ours."""
        self.spans = None
        self.on = True
        self.here = Here()
        self._devices = set()
        self.graphs.forget()

    def spans_now(self) -> Optional[Spans]:
        """The spans of this process, waiting shortly for its journal; None where it has none."""
        return self.spans if self.spans is not None else self.wait_for_journal()

    def _begin(self, tensor: Any, phase: str, name: str) -> Optional[Span]:
        """Begin a span on a tensor's device; None on the CPU, or where nothing is recorded."""
        with self._unseen():
            ordinal = _ordinal_of(tensor)
        return NESTED if ordinal is None else self._begin_on(ordinal, phase, name)

    def _begin_on(self, ordinal: int, phase: str, name: str) -> Optional[Span]:
        spans = self.spans_now()
        if spans is None:
            return NESTED
        if ordinal not in self._devices:
            self._devices.add(ordinal)
            self.on_device(ordinal)
        spans.step = self.steps.count
        return spans.begin(phase, name)

    @contained("end of a phase")
    def leave(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of any phase."""
        if self.spans is not None:
            self.spans.end(span, error)

    def _within(self, phase: str) -> bool:
        """Whether the calling thread is in a call of torch's of this phase."""
        return self.spans is not None and any(span.phase == phase for span in self.spans.calls())

    def end_stale(self) -> None:
        """End what an interrupt has left open on this thread: no function is there that would."""
        spans, here = self.spans, self.here
        if spans is None:
            return
        phases = {span.phase for span in spans.calls()}.intersection(HOLDERS)
        if phases:
            there = entered()
            spans.end_stale(tuple(phase for phase in phases if not HOLDERS[phase] & there))
        here.inside = here.inside and any(map(self._within, MODULES))

    # --- root modules -------------------------------------------------------------------------

    def enter_module(self, module: Any, args: Any, kwargs: Any) -> Optional[Span]:
        """At the call of any module. Only a root that owns parameters on a device begins a span."""
        here = self.here
        if here.inside or not self.on:
            return NESTED
        with self._unseen():
            return self._enter_root(here, module, args, kwargs)

    @contained("phase of a module")
    def _enter_root(self, here: Here, module: Any, args: Any, kwargs: Any) -> Optional[Span]:
        known = self._known.look_up(module)
        if known is None:
            return NESTED
        root, parameter = known
        if parameter.is_cuda:
            ordinal = parameter.get_device()
        else:  # its parameters are offloaded: it is a root if it works on a device
            inputs = itertools.chain(args, kwargs.values())
            ordinal = next((o for o in map(_ordinal_of, inputs) if o is not None), None)
            if ordinal is None:
                return NESTED
        self.end_stale()
        phase, name = self._classify(here, module, root.model, parameter), root.name
        span = self._begin_on(ordinal, phase, name)
        if span is None:
            return NESTED
        here.inside = True
        if not root.entered:
            root.entered = True
            self.roots.add(module)
        self.on_inputs(phase, name, args, kwargs)
        return span

    def _classify(self, here: Here, module: Any, model: Model, parameter: Any) -> str:
        if self.graph_task() != -1:
            return "recompute"
        if here.generating:
            phase = "prefill" if here.generating == 1 else "decode"
            here.generating = 2
            return phase
        steps = self.steps
        if not self.grad_enabled() and not here.checkpointing:
            # Teachers never train while others do; a model that trains is within its own step.
            teacher = steps.training and not module.training and not model.trained
            if steps.within or teacher:
                return "no-grad"
            steps.inferred(model.identity)
            return "eval"
        if not module.training and not model.fixed:
            here.fixed = model
            steps.inferred(model.identity)
            return "eval"
        here.fixed = None
        # Of tensors that are no leaves (functional_call puts them there) reading it would warn.
        cleared = (
            steps.leaderless
            and parameter.requires_grad
            and parameter.is_leaf
            and parameter.grad is None
            and not self._within("optimizer")
        )
        steps.forward(cleared)
        model.trained = True
        return "forward"

    @contained("phase of a module")
    def leave_module(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of a root's call."""
        self.here.inside = False
        if self.spans is not None:
            self.spans.end(span, error)
            if span.phase == "eval" and not self.steps.training:
                self.on_step_end()

    @contained("checkpoint")
    def enter_checkpoint(self, context: Any) -> Optional[bool]:
        """Where reentrant checkpointing runs something without gradients, of which they will be asked."""
        if self.here.checkpointing or not any(context.needs_input_grad):
            return NESTED
        self.here.checkpointing = True
        return True

    @contained("checkpoint")
    def leave_checkpoint(self, token: bool, error: Optional[BaseException]) -> None:
        """At its end."""
        self.here.checkpointing = False

    @contained("phase of a recomputation")
    def enter_recompute(self, function: Any) -> Optional[Span]:
        """Where checkpointing runs a module's method again: the modules below are part of that."""
        module, spans, here = module_of(function), self.spans, self.here
        if not self.on or module is None or spans is None or here.inside or not self._devices:
            return NESTED
        self.end_stale()
        spans.step = self.steps.count
        here.inside = True
        return spans.begin("recompute", known_name(core_of(module)))

    # --- backward and optimizer ---------------------------------------------------------------

    @contained("phase of backward")
    def enter_backward(self, tensors: Any) -> Optional[Span]:
        """At ``torch.autograd.backward``; a reentrant one is part of the outer."""
        return self._enter_backward(tensors, True)

    @contained("phase of backward")
    def enter_grad(self, tensors: Any) -> Optional[Span]:
        """At ``torch.autograd.grad``, which returns the gradients."""
        return self._enter_backward(tensors, False)

    def _enter_backward(self, tensors: Any, accumulates: bool) -> Optional[Span]:
        if not self.on or self.graph_task() != -1:
            return NESTED
        self.end_stale()
        if self._within("backward"):
            return NESTED  # a torch function of the user's, or of a default device, comes back to it
        first = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
        if type(first).__module__.startswith("torch._subclasses"):
            return NESTED  # torch.compile derives a backward: nothing is computed
        with self._unseen():
            ordinal = _ordinal_of(first)
        if not self.here.inside:  # a model that computes forces does not learn by that
            if ordinal is not None:
                self.steps.unmodelled()
            self._learn(accumulates)
        spans = self.spans
        if ordinal is not None:
            return self._begin_on(ordinal, "backward", "")
        if spans is None or not self.steps.within:
            return NESTED
        spans.step = self.steps.count
        return spans.begin("backward", "")  # of a loss on the host, by what a device computed

    def _learn(self, accumulates: bool) -> None:
        """Gradients are about to be computed of what was called so far."""
        here = self.here
        if here.fixed is not None:  # it was no evaluation: somebody learns from it
            here.fixed.fixed = True
            self.steps.forward()
            here.fixed = None
        while self._made:
            optimizer = self._made.pop()()
            if optimizer is not None:
                self.steps.made(id(_first_parameter(optimizer)))
                self.on_optimizer(optimizer)
        self.steps.backward(accumulates)

    @contained("new optimizer")
    def made_optimizer(self, optimizer: Any, error: Optional[BaseException]) -> None:
        """An optimizer was made; which tensors it has is looked at when it will soon step."""
        if error is None and not self.here.inside and len(self._made) < MOST_OPTIMIZERS:
            self._made.append(weakref.ref(optimizer))

    @contained("phase of an optimizer")
    def enter_optimizer(self, arguments: Any, _: Any, keywords: Any) -> Optional[_Step]:
        """At any ``Optimizer.step``: the wrapper's arguments, the optimizer first, and keywords."""
        if not self.on or not arguments:
            return NESTED
        if self.here.stepping:
            self.optimizers.add(arguments[0])
            return NESTED
        if self.graph_task() == -1:
            self.end_stale()
            if self._within("optimizer"):  # it steps by this one: part of its step
                self.optimizers.add(arguments[0])
                return NESTED
        first = _first_parameter(arguments[0])
        # A closure computes the loss anew within the step: its forward and backward are part of this span.
        closure = callable(arguments[1] if len(arguments) > 1 else keywords.get("closure"))
        name = type(arguments[0]).__name__ + (" + closure" if closure else "")
        if closure and self.graph_task() == -1:
            self.steps.forward()
        span = self._begin(first, "optimizer", name)
        if span is None and self.spans is not None and self.steps.training:
            span = self.spans.begin("optimizer", name)  # offloaded: it steps on the host what a device trains
        identity = None if self.here.inside else id(first)
        return (span, arguments[0], identity) if span is not None else NESTED

    @contained("phase of an optimizer")
    def leave_optimizer(self, token: _Step, error: Optional[BaseException]) -> None:
        """At the end of an optimizer's step."""
        span, optimizer, identity = token
        if self.spans is not None:
            self.spans.end(span, error)
        if error is None:
            self.optimizers.add(optimizer)
            if identity is not None:
                first = _first_parameter(optimizer)
                self.steps.stepped(identity, weakref.ref(first) if first is not None else lambda: True)
            self.on_step_end()

    # --- markers ------------------------------------------------------------------------------

    @contained("process group")
    def on_process_group(self, distributed: Any, error: Optional[BaseException]) -> None:
        """After ``init_process_group``, or ``destroy_process_group``."""
        if error is None:
            self.on_group(distributed)

    @contained("mark")
    def mark(self, name: str, detail: Optional[str] = None) -> None:
        """A moment worth a tick on the axis."""
        self.on_mark(name, detail)

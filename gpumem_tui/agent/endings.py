"""Exceptions that nobody caught: told to the journal, and printed as they would be without us.

The hooks of ``sys`` and ``threading`` are chained: what was there before is called
with the same arguments. Whoever replaces them later loses nothing but our hearing of
it; the interpreter itself keeps the last exception of a program, which is looked at
when it ends. An out-of-memory error that PyTorch's observer has not told of (another
allocator, a library outside it) is looked into here.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Iterator, List, Optional, Tuple

from . import wire
from .guard import contain, contained, is_the_users
from .ring import RAISED, RAISED_MEMORY
from .weave import weave

if TYPE_CHECKING:
    from .process import Monitored

LONGEST_WAIT_S = 0.5
"""How long an exception waits for the journal to be opened, where CUDA was initialised a moment before."""

LONGEST_TEXT = 2000
"""Characters of a message that are kept."""

OUTSIDE = (
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "HIP error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
    "CUFFT_ALLOC_FAILED",
    "Failed to CUDA calloc",
    "Failed to CUDA malloc",
    "Cuda failure 'out of memory'",
    "Cuda failure 2 'out of memory'",
    "Cuda failure [2] 'out of memory'",
)
"""What libraries say that found no device memory left, each on its own behind the allocator's back."""

NAMED = (
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "hipErrorOutOfMemory",
    "cudaMalloc failed: out of memory",
    "cuMemAlloc failed: out of memory",
)
"""The driver's own words for it, which errors of any class repeat: RMM's are MemoryErrors."""

OOM = "out of memory"
_PLAIN = (str, int, float, bool, bytes, type(None))
_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_class_name = type.__dict__["__name__"].__get__


def text_of(error: BaseException) -> str:
    """The message, where reading it runs none of the user's code; empty otherwise."""
    for cls in _mro(type(error)):
        if "__str__" in _class_dict(cls):
            if str(_class_dict(cls).get("__module__", "builtins")).partition(".")[0] not in (
                "builtins",
                "torch",
            ):
                return ""
            break
    if not all(type(argument) in _PLAIN for argument in BaseException.args.__get__(error)):  # type: ignore[attr-defined]
        return ""
    return str(error)[:LONGEST_TEXT]


def _words_of(error: BaseException) -> str:
    """What an error was made with, which its class may print in a way of its own: Numba's do."""
    arguments = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    return "\n".join(each[:LONGEST_TEXT] for each in arguments if type(each) is str)


def kind_of(error: BaseException) -> str:
    """``out of memory``, ``outside the allocator`` or ``exception``: by what the message itself says."""
    text = text_of(error)
    names = [_class_name(cls) for cls in _mro(type(error))]
    if text.startswith("Caught ") and "Original Traceback" in text:
        return "exception"  # a data loader's worker has failed, and told of it itself
    says = "OutOfMemoryError" in names or "out of memory. Tried to allocate" in text
    if says and "RuntimeError" in names:
        return OOM
    if "OutOfMemoryError" in names:  # CuPy's
        return "outside the allocator"
    if "RuntimeError" in names and any(mark in text for mark in OUTSIDE):
        return "outside the allocator"
    if any(mark in _words_of(error) for mark in NAMED):
        return "outside the allocator"
    return "exception"


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    """The exception and what led to it, at most ten."""
    context, cause = (
        BaseException.__dict__["__context__"].__get__,
        BaseException.__dict__["__cause__"].__get__,
    )
    for _ in range(10):
        if error is None:
            return
        yield error
        error = cause(error) or context(error)


class Endings:
    """Hears of uncaught exceptions in this process."""

    def __init__(self, monitored: "Monitored") -> None:
        self._monitored = monitored
        self._told = 0
        """Identity of the last exception that was told."""

    def install(self) -> None:
        """Chain the hooks.

        Consoles and libraries ask whether ``sys.excepthook`` is ``sys.__excepthook__``, and
        print otherwise if it is not: where it was, it still is.
        """
        self._put_before(sys, lambda kind, value, trace: (None if _goes_on() else value, trace, None))
        self._put_before(threading, lambda args: (args.exc_value, args.exc_traceback, args.thread))
        process = sys.modules.get("multiprocessing.process")
        if process is not None:  # its children print what nobody caught by themselves
            base = process.BaseProcess
            try:
                base.run = weave(base.run, lambda process: process, self._leave_child, lambda: False)
            except (ValueError, SyntaxError, OSError) as error:
                contain("patch multiprocessing", error)  # a standard library without its source

    def _put_before(self, module: Any, read: Callable[..., Tuple[Any, Any, Any]]) -> None:
        before = module.excepthook
        hook = functools.update_wrapper(self._hook(before, read), before)
        del hook.__wrapped__
        if getattr(module, "__excepthook__", None) is before:  # threading has one since 3.10
            module.__excepthook__ = hook
        module.excepthook = hook

    def _hook(
        self, before: Callable[..., Any], read: Callable[..., Tuple[Any, Any, Any]]
    ) -> Callable[..., Any]:
        def hook(*arguments: Any) -> Any:
            try:
                self._tell(*read(*arguments))
            except BaseException as error:
                if not isinstance(error, Exception) or is_the_users(error):
                    before(*arguments)
                    raise
                contain("uncaught exception", error)
            return before(*arguments)

        return hook

    def _leave_child(self, process: Any, error: Optional[BaseException]) -> None:
        """At the end of a child process's work."""
        try:
            self._tell_of_child(error)
        except Exception as own:
            if is_the_users(own):
                raise
            contain("uncaught exception", own)

    def _tell_of_child(self, error: Optional[BaseException]) -> None:
        if type(error) is SystemExit and error.code:
            error = error.__context__  # torch.multiprocessing's way to fail
        if error is not None and id(error) != self._told:
            self._tell(error, error.__traceback__, None)

    @contained("uncaught exception")
    def at_exit(self) -> None:
        """The interpreter ends: has it printed an exception that no hook of ours heard of?"""
        if _goes_on() or "IPython" in sys.modules:
            return
        last = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if last is not None and id(last) != self._told:
            self._tell(last, last.__traceback__, None)

    @contained("uncaught exception")
    def at_exit_of_child(self) -> None:
        """A child of multiprocessing ends: its finalizers run while what ends it is on its way.

        A class of the user's may have a ``run`` of its own, which no patch of ours sees.
        """
        self._tell_of_child(sys.exc_info()[1])

    def _tell(self, error: Optional[BaseException], trace: Any, thread: Any) -> None:
        monitored = self._monitored
        if error is None or SystemExit in _mro(type(error)):
            return
        monitored.wait_until_started(LONGEST_WAIT_S)
        if monitored.journal is None:
            return  # a process that does not use the card
        self._told = id(error)
        at, kind, name = wire.now_ns(), kind_of(error), _class_name(type(error))
        if thread is None and monitored.ring is not None:
            monitored.ring.say(RAISED if kind == "exception" else RAISED_MEMORY)
        text = text_of(error)
        phases = self._phases(error)
        phase = " > ".join(phase for phase, _, _ in phases) or None
        step = phases[-1][2] if phases else monitored.spans.step if monitored.spans is not None else None
        failures, path, record = monitored.failures, self._path_of(error), None
        if failures is not None and path is None:
            record = failures.essentials(kind, at, failures.current_device())
            record["error"] = "%s: %s" % (name, text) if text else name
            record["stack"], record["step"] = _stack(trace), step
            record["phases"] = [{"phase": phase, "name": of, "step": n} for phase, of, n in phases]
            path = failures.keep(record, at)
        who = thread.name if thread is not None else None
        monitored.tell("exception", at, kind, name, text, phase, step, path, who)
        if failures is None or record is None:
            monitored.flush()
        elif kind == "exception":
            monitored.flush()
            failures.leave_out(record, path, "left out: not a failure of memory")
        else:
            failures.complete(record, path, at, phase or "")

    def _phases(self, error: BaseException) -> List[Tuple[str, str, int]]:
        """Phases that were open where the exception, or what led to it, was raised."""
        spans = self._monitored.spans
        if spans is None or spans.raised is None:
            return []
        identity, phases = spans.raised
        return phases if identity in map(id, _chain(error)) else []

    def _path_of(self, error: BaseException) -> Optional[str]:
        """The record of the failing allocation that this exception comes from, where there is one."""
        failures = self._monitored.failures
        for each in _chain(error):
            if kind_of(each) == OOM and "Tried to allocate" in text_of(each):
                frames = _stack(BaseException.__dict__["__traceback__"].__get__(each))
                return failures.path_of(text_of(each), frames[-1] if frames else None) if failures else None
        return None


def _goes_on() -> bool:
    """Whether there is a prompt, at which people go on after an exception, or will be one (``python -i``)."""
    return hasattr(sys, "ps1") or bool(sys.flags.inspect)


def _stack(trace: Any) -> List[str]:
    """Of a traceback, ``file:line function``, innermost last, at most 60."""
    last: Deque[Tuple[Any, int]] = deque(maxlen=60)
    while trace is not None:
        last.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return ["%s:%d %s" % (code.co_filename, line, code.co_name) for code, line in last]

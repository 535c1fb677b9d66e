"""The one boundary where errors of our own are contained: none of them reaches the user's program.

The first error of a process is kept (``first_error``), becomes a *word* of its
journal, and switches off what failed. With ``GPUMEM_TUI_RAISE=1`` (our tests) it is
raised instead. ``KeyboardInterrupt`` and ``SystemExit`` are never ours to keep.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as typing's, which is not loaded for this
if TYPE_CHECKING:
    from typing import Any, Callable, List, TypeVar

    _Function = TypeVar("_Function", bound=Callable[..., Any])

RAISE = bool(os.environ.get("GPUMEM_TUI_RAISE"))
"""Whether contained errors are raised again: in our tests only."""

errors: List[str] = []
"""Every contained error of this process, as "where: what", at most :data:`MOST`."""

MOST = 20
"""Errors beyond this many are not kept; a fault that repeats itself tells nothing new."""


def contain(where: str, error: BaseException) -> None:
    """Keep an error of our own from the user's program; ``where`` names what failed."""
    if len(errors) < MOST:
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1:]
        place = " at %s:%s" % (os.path.basename(last[0].filename), last[0].lineno) if last else ""
        errors.append("%s: %s: %s%s" % (where, type(error).__name__, error, place))
    if RAISE:
        raise error


def is_the_users(error: BaseException) -> bool:
    """Whether an exception that came out of our code was raised by the user's: in a signal handler, or sent.

    An exception class of the user's own cannot come from us either.
    """
    module = type(error).__module__
    if module != "builtins" and module.partition(".")[0] not in ("torch", "json", "struct", "weakref"):
        return True
    import signal

    codes = set()
    for number in range(1, signal.NSIG):
        handler = signal.getsignal(number)
        if not callable(handler):
            continue
        handler = getattr(handler, "func", handler)  # functools.partial
        function = getattr(handler, "__func__", handler)
        code = getattr(function, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
        codes.add(code)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def contained(where: str) -> Callable[[_Function], _Function]:
    """Decorate a function that user code runs into: its errors are contained, and it returns None then.

    What a signal handler of the user's raises while ours runs is theirs and passes, as
    KeyboardInterrupt does. ``heal()`` of the first argument, where it has one, is called
    then: whatever the function had half done is no more.
    """

    def decorate(function: _Function) -> _Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                if isinstance(error, Exception) and not is_the_users(error):
                    contain(where, error)
                    return None
                heal = getattr(args[0], "heal", None) if args else None
                if heal is not None:
                    heal()
                raise

        call.__name__, call.__doc__ = function.__name__, function.__doc__
        return call  # type: ignore[return-value]

    return decorate

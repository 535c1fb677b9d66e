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

OURS = ("torch", "json", "struct", "weakref", "ctypes", "pickle", "_pickle", "threading")
"""Modules whose exceptions may come out of code of ours, beside the builtin ones."""

MOST = 20
"""Errors beyond this many are not kept; a fault that repeats itself tells nothing new."""


def contain(where: str, error: BaseException) -> None:
    """Keep an error of our own from the user's program; ``where`` names what failed."""
    if len(errors) < MOST:
        try:
            errors.append(_told(where, error))
        except Exception:  # noqa: BLE001  no memory is left, or no depth: its place is untold
            errors.append(where)
    if RAISE:
        raise error


def _told(where: str, error: BaseException) -> str:
    trace, place = error.__traceback__, ""
    while trace is not None:
        place = " at %s:%s" % (os.path.basename(trace.tb_frame.f_code.co_filename), trace.tb_lineno)
        trace = trace.tb_next
    return "%s: %s: %s%s" % (where, type(error).__name__, error, place)


def is_the_users(error: BaseException) -> bool:
    """Whether an exception that came out of our code was raised by the user's: in a signal handler, or sent.

    An exception class of the user's own cannot come from us either.
    """
    if not error.args and type(error).__name__ not in ("AssertionError", "MemoryError", "StopIteration"):
        return (
            True  # sent from outside (PyThreadState_SetAsyncExc gives no arguments); ours say what is wrong
        )
    module = type(error).__module__
    if module != "builtins" and module.partition(".")[0] not in OURS:
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
    then, as after an error of ours: whatever the function had half done is no more.
    Where the user's program is as deep in calls as it may be, ours is left out without
    a word: to look into the error would take further calls.
    """

    def decorate(function: _Function) -> _Function:
        def call(*args: Any) -> Any:
            try:
                return function(*args)
            except RecursionError:
                try:
                    _heal(args)
                except RecursionError:
                    pass  # not even the function itself could be called: it has done nothing
                return None
            except BaseException as error:
                _heal(args)
                if isinstance(error, Exception):
                    try:
                        if not is_the_users(error):
                            contain(where, error)
                            return None
                    except RecursionError:
                        return None
                raise

        call.__name__, call.__doc__ = function.__name__, function.__doc__
        return call  # type: ignore[return-value]

    return decorate


def _heal(args: Any) -> None:
    heal = getattr(args[0], "heal", None) if args else None
    if heal is not None:
        heal()

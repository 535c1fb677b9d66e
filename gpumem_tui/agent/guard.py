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


def contained(where: str) -> Callable[[_Function], _Function]:
    """Decorate a function that user code runs into: its errors are contained, and it returns None then."""

    def decorate(function: _Function) -> _Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  the named boundary
                contain(where, error)
                return None

        call.__name__, call.__doc__ = function.__name__, function.__doc__
        return call  # type: ignore[return-value]

    return decorate

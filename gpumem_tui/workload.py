"""What a training script may say of itself: ``gpumem_tui.phase("rollout")``, ``gpumem_tui.mark("saved")``.

No-ops, costing less than a microsecond, where the script is not monitored, and within
what torch.compile compiles: there is no moment at which such a phase would begin. Standard
library only; never raises because of the monitor.
"""

from __future__ import annotations

import functools
import sys
from contextlib import ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Function = TypeVar("_Function", bound="Callable[..., Any]")


def _phases() -> Any:
    """The agent's phases in this process, or None; None, too, while torch.compile traces the caller."""
    agent: Any = sys.modules.get("_gpumem_tui_agent")
    if agent is None or agent.tracing() or agent.monitored is None:
        return None
    return agent.monitored.phases


class phase(ContextDecorator):  # noqa: N801  reads as a word of the language where it is used
    """A named span, as context manager or decorator; nests, from any thread and in any task.

    What is decorated may be a coroutine function or a generator function: its span ends when
    it has run to its end. What the caller does between two values of a generator is not in it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tokens: list[Any] = []

    def _recreate_cm(self) -> phase:
        """Each call of a decorated function is a span of its own."""
        return phase(self.name)

    def __call__(self, function: _Function) -> _Function:
        """Decorate a function, a coroutine function, or a generator function of either kind."""
        import inspect  # torch has loaded it; what runs without torch is to stay without it

        if inspect.iscoroutinefunction(function):
            made: Any = _coroutines(function, self._recreate_cm)
        elif inspect.isasyncgenfunction(function):
            made = _async_generators(function, self._recreate_cm)
        elif inspect.isgeneratorfunction(function):
            made = _generators(function, self._recreate_cm)
        else:
            return super().__call__(function)
        return functools.wraps(function)(made)  # type: ignore[return-value]

    def __enter__(self) -> phase:
        phases = _phases()
        self._tokens.append(phases.named.enter(self.name) if phases is not None else None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        phases, tokens = _phases(), self._tokens
        token = tokens[0] if len(tokens) == 1 or phases is None else phases.named.pick(tokens)
        tokens.remove(token)
        if token is not None and phases is not None:
            phases.named.leave(token, error)

    def _pause(self) -> None:
        """The generator has yielded."""
        phases, (token,) = _phases(), self._tokens
        if token is not None and phases is not None:
            phases.named.pause(token)

    def _resume(self) -> None:
        """It is asked on."""
        phases, (token,) = _phases(), self._tokens
        if token is not None and phases is not None:
            phases.named.resume(token)


def _coroutines(function: Callable[..., Any], span: Callable[[], phase]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        with span():
            return await function(*args, **kwargs)

    return call


def _async_generators(function: Callable[..., Any], span: Callable[[], phase]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        values, given = function(*args, **kwargs), None
        step = values.asend
        with span() as within:
            while True:
                try:
                    value = await step(given)
                except StopAsyncIteration:
                    return
                finally:
                    given = None  # an error would keep this frame, and this frame the error
                within._pause()
                try:
                    step, given = values.asend, (yield value)
                except GeneratorExit:
                    await values.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001  its own to handle
                    step, given = values.athrow, error
                finally:
                    within._resume()

    return call


def _generators(function: Callable[..., Any], span: Callable[[], phase]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        values, given = function(*args, **kwargs), None
        step = values.send
        with span() as within:
            while True:
                try:
                    value = step(given)
                except StopIteration as end:
                    return end.value
                finally:
                    given = None
                within._pause()
                try:
                    step, given = values.send, (yield value)
                except GeneratorExit:
                    values.close()
                    raise
                except BaseException as error:  # noqa: BLE001  its own to handle
                    step, given = values.throw, error
                finally:
                    within._resume()

    return call


def mark(text: str) -> None:
    """A moment worth a tick on the axis, with a text of yours."""
    phases = _phases()
    if phases is not None:
        phases.mark("mark", text)

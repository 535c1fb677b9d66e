"""Which devices this process uses, and whether their counters may be read now, and by whom.

Counters are not to be had everywhere (a pluggable allocator, no caching), and not at
any time: while a thread is inside an allocator that re-enters Python, another one that
reads would deadlock with it. Reads nothing itself but to find out what is in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

if TYPE_CHECKING:
    from .process import Monitored


class Reading:
    """The one of a process; it stays the same object in a forked child."""

    def __init__(self, monitored: Monitored) -> None:
        self._monitored = monitored
        self.forget()

    def forget(self) -> None:
        """The state of a process that has not started to be monitored."""
        self.active: Tuple[int, ...] = ()
        """Ordinals of the devices that this process uses."""
        self.custom_pools = 0
        """Threads inside a memory pool with an allocator that may re-enter Python."""
        self._trusted: Optional[bool] = None
        """Whether counters are to be had and trusted; None until the allocator is known."""
        self._custom = False
        self.readable: Tuple[int, ...] = ()
        """Devices whose counters the calling user thread may read at a boundary; looked at by each."""

    def _renew(self) -> None:
        self.readable = self.active if self._trusted and not self.custom_pools else ()

    # --- what is in use -----------------------------------------------------------------------

    def on_device(self, ordinal: int) -> None:
        """A span begins on this device."""
        if ordinal not in self.active:
            self.active = tuple(sorted(self.active + (ordinal,)))
            self._renew()

    def note_current(self) -> None:
        """On a user's thread: before any device is used, the current one is where memory will go."""
        if not self.active and self._trusted:
            self.on_device(self._monitored.torch._C._cuda_getDevice())

    def look_around(self) -> None:
        """Which devices this process has come to use."""
        counters = self._monitored.counters
        if counters is None or not self._trusted or self.custom_pools:
            return
        for ordinal in self.unused():
            if counters.sample(ordinal)["reserved_bytes"]["all"]["current"]:
                self.on_device(ordinal)

    def unused(self) -> Tuple[int, ...]:
        """Visible devices that this process has not used."""
        return tuple(i for i in range(self._monitored.torch.cuda.device_count()) if i not in self.active)

    # --- who may read -------------------------------------------------------------------------

    def may_read(self) -> bool:
        """Whether a thread of ours may read counters now."""
        return bool(self._trusted) and not self._custom

    def may_read_here(self) -> bool:
        """Whether the calling thread, at an allocation of its own, may read counters."""
        return self._trusted is not False and not self.custom_pools

    def start(self) -> None:
        """The allocator is known, and its counters are to be trusted as far as that says."""
        self._trusted = True
        self._renew()

    def stop(self, code: str, text: str) -> None:
        """Counters are not to be had, or not to be trusted: say so once, and never read again."""
        if self._trusted:
            self._trusted = False
            self._renew()
            self._monitored.say(code, text)

    def enter_custom_pool(self, entered: int) -> None:
        """A thread enters (1) or leaves (-1) a memory pool with an allocator of its own."""
        self.custom_pools += entered
        self._renew()

    def on_custom_allocator(self) -> None:
        """An allocator that may call Python exists: from now on, only boundaries on user threads read."""
        if not self._custom:
            self._custom = True
            self._monitored.say(
                "custom allocator",
                "a custom allocator is in use: counters are read at phase boundaries only "
                "(reading them from another thread could deadlock)",
            )

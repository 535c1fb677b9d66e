"""Memory outside PyTorch over time: its baseline at CUDA initialisation, and in which phase it grew.

Fed with paired readings at quiet moments only. Owns when a change is worth keeping and
what was going on meanwhile; refuses to say why it grew.
"""

from collections import deque
from collections.abc import Iterable

from gpumem_tui import records
from gpumem_tui.analysis.state import Band, OutsideState, OutsideStep

STEP_BYTES = 16 << 20
"""A change of memory outside PyTorch that is kept."""

MOST = 64
"""Steps kept of one rank on one device, the latest."""


class Outside:
    """One rank on one device."""

    def __init__(self, device: int, pid: int, t_ns: int, value: int) -> None:
        self._device, self._pid = device, pid
        self._baseline, self._baseline_ns = value, t_ns
        self._kept, self._last, self._last_ns = value, value, t_ns
        self._quiet_ns = t_ns
        """The last reading at which it stood as it was kept."""
        self._steps: deque[OutsideStep] = deque(maxlen=MOST)

    def is_step(self, value: int) -> bool:
        """Whether this figure is another than the one that is kept."""
        return abs(value - self._kept) >= STEP_BYTES

    def stands(self, t_ns: int, value: int) -> None:
        """A reading that is no step."""
        self._last, self._last_ns = value, t_ns
        self._quiet_ns = t_ns

    def add(self, t_ns: int, value: int, bands: Iterable[Band], marks: Iterable[records.Mark]) -> OutsideStep:
        """A reading that is a step, and what there was to see between it and the one before."""
        since_ns = self._quiet_ns
        phases = dict.fromkeys(
            band.phase
            for band in sorted(bands, key=lambda band: (band.since_ns, band.depth))
            if band.since_ns <= t_ns and (band.until_ns is None or band.until_ns >= since_ns)
        )
        named = dict.fromkeys(_label(mark) for mark in marks if since_ns <= mark.t_ns <= t_ns)
        step = OutsideStep(since_ns, t_ns, value - self._kept, tuple(phases), tuple(named))
        self._steps.append(step)
        self.stands(t_ns, value)
        self._kept = value
        return step

    def state(self, rank: int | None) -> OutsideState:
        """A frozen copy."""
        return OutsideState(
            device=self._device,
            pid=self._pid,
            rank=rank,
            baseline_bytes=self._baseline,
            baseline_ns=self._baseline_ns,
            bytes=self._last,
            t_ns=self._last_ns,
            steps=tuple(self._steps),
        )


def _label(mark: records.Mark) -> str:
    """The user's own marks are told by what the user called them."""
    return mark.detail if mark.name == "mark" and mark.detail else mark.name

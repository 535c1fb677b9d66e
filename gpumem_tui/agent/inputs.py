"""What really entered the root modules: shapes and dtypes with counts. Configured sizes prove nothing."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

MOST = 64
"""Distinct inputs kept of one phase; further ones are counted together."""

Key = Tuple[str, str, str]
"""Phase, name, and the input as text: ``float32[8,512] int64[8,512]``."""


class Inputs:
    """Counts on the user's thread; what is new is told by the sampler."""

    def __init__(self, tensor: type) -> None:
        self._tensor = tensor
        self._counts: Dict[Key, int] = {}
        self._told: Dict[Key, int] = {}
        self._kinds: Dict[Tuple[str, str], int] = {}

    def take(self, phase: str, name: str, args: Any, kwargs: Any) -> None:
        """Count one call of a root module."""
        parts = [self._text(value) for value in args if isinstance(value, self._tensor)]
        parts += [key + "=" + self._text(v) for key, v in kwargs.items() if isinstance(v, self._tensor)]
        key = (phase, name, " ".join(parts))
        if key not in self._counts:
            kinds = self._kinds.get((phase, name), 0)
            self._kinds[phase, name] = kinds + 1
            if kinds >= MOST:
                key = (phase, name, "(others)")
        self._counts[key] = self._counts.get(key, 0) + 1

    @staticmethod
    def _text(tensor: Any) -> str:
        return "%s[%s]" % (str(tensor.dtype)[6:], ",".join(map(str, tensor.shape)))

    def news(self) -> List[Tuple[str, str, str, int]]:
        """Phase, name, input and count so far of every input that was counted since the last call."""
        found = []
        for key, count in list(self._counts.items()):
            if self._told.get(key) != count:
                self._told[key] = count
                found.append(key + (count,))
        return found

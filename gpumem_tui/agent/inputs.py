"""What really entered the root modules: shapes and dtypes with counts. Configured sizes prove nothing."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

from .guard import contained

MOST = 64
"""Distinct inputs kept of one phase; further ones are counted together."""

Key = Tuple[str, str, Tuple[Tuple[str, Any, Any], ...]]
"""Phase, name, and of every tensor its keyword (empty where it has none), dtype and shape."""

OTHERS = (("(others)", None, None),)


class Inputs:
    """Counts on the user's thread; what is new is told, and put into words, by the sampler."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self._counts: Dict[Key, List[int]] = {}
        """Each count in a list of its own: it goes up without another look-up."""
        self._told: Dict[Key, int] = {}
        self._kinds: Dict[Tuple[str, str], int] = {}

    @contained("inputs")
    def take(self, phase: str, name: str, args: Any, kwargs: Any) -> None:
        """Count one call of a root module."""
        tensor = self._tensor
        parts = [("", value.dtype, value.shape) for value in args if isinstance(value, tensor)]
        if kwargs:
            parts += [(key, v.dtype, v.shape) for key, v in kwargs.items() if isinstance(v, tensor)]
        key = phase, name, tuple(parts)
        count = self._counts.get(key)
        if count is None:
            count = self._new(key)
        count[0] += 1

    def _new(self, key: Key) -> List[int]:
        """The count of an input that was not met yet; beyond :data:`MOST`, that of all others."""
        phase, name, _ = key
        kinds = self._kinds.get((phase, name), 0)
        self._kinds[phase, name] = kinds + 1
        return self._counts.setdefault((phase, name, OTHERS) if kinds >= MOST else key, [0])

    def news(self) -> List[Tuple[str, str, str, int]]:
        """Phase, name, input as text (``float32[8,512] mask=bool[8]``) and count so far, where it grew."""
        found = []
        for key, (count,) in list(self._counts.items()):
            if self._told.get(key) != count:
                self._told[key] = count
                found.append((key[0], key[1], " ".join(map(_text, key[2])), count))
        return found


def _text(part: Tuple[str, Any, Any]) -> str:
    key, dtype, shape = part
    if dtype is None:
        return key
    text = "%s[%s]" % (str(dtype)[6:], ",".join(map(str, shape)))
    return key + "=" + text if key else text

"""How PyTorch's allocator is set up in this process. Reads; changes nothing."""

from __future__ import annotations

from typing import Any, Dict, Optional


def read(
    torch: Any, ordinal: int, backend: str, text: Optional[str], snapshot: Optional[Dict[str, Any]]
) -> Dict[str, Any]:
    """As ``records.failure.Settings``; ``snapshot`` is the allocator's, where one was taken."""
    expandable = (snapshot or {}).get("allocator_settings", {}).get("expandable_segments")
    if expandable is None and text is not None:
        words = text.replace(" ", "").lower()
        expandable = "expandable_segments:true" in words
    return {
        "backend": backend,
        "text": text,
        "expandable_segments": expandable,
        "memory_fraction": _fraction(torch, ordinal),
    }


def _fraction(torch: Any, ordinal: int) -> Optional[float]:
    """``set_per_process_memory_fraction``; None where it was never set or is not told; 1.0 limits nothing."""
    read_fraction = getattr(torch._C, "_cuda_getMemoryFraction", None)
    if read_fraction is None:
        return None
    try:
        fraction = float(read_fraction(ordinal))
    except RuntimeError:
        return None
    return fraction if fraction < 1.0 else None

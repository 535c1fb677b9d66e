"""The ledger bar: how many cells of a row each term of a device gets. Arithmetic only."""

from collections.abc import Sequence

from gpumem_tui.views.text import TEXTURE, Line, Span


def apportion(sizes: Sequence[int], cells: int) -> list[int]:
    """Share ``cells`` out by size: by largest remainder, and something for everything that is not nothing.

    Negative sizes get no cell. The counts sum to ``cells``, unless nothing has a size.
    """
    sizes = [max(0, size) for size in sizes]
    whole = sum(sizes)
    if whole == 0 or cells <= 0:
        return [0] * len(sizes)
    counts = [size * cells // whole for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: sizes[i] * cells % whole, reverse=True)
    for i in by_remainder[: cells - sum(counts)]:
        counts[i] += 1
    if sum(1 for size in sizes if size) <= cells:
        for i, size in enumerate(sizes):
            if size and not counts[i]:
                counts[max(range(len(counts)), key=counts.__getitem__)] -= 1
                counts[i] = 1
    return counts


def bar(parts: Sequence[tuple[str, int | None]], whole_bytes: int | None, cells: int) -> Line:
    """A row of textures: ``parts`` are (term, bytes) from left to right.

    What ``whole_bytes`` has beyond the known parts stays blank: it is not known. Without
    a whole there is nothing to measure against, and the row says so.
    """
    known = [(term, size) for term, size in parts if size is not None]
    total = sum(max(0, size) for _, size in known)
    if whole_bytes is None or whole_bytes <= 0:
        return (Span("total not known".ljust(cells)[:cells], "dim"),)
    unknown = max(0, whole_bytes - total)
    counts = apportion([*(size for _, size in known), unknown], cells)
    spans = [
        Span(TEXTURE[term] * count, term) for (term, _), count in zip(known, counts, strict=False) if count
    ]
    if counts[-1]:
        spans.append(Span(" " * counts[-1]))
    return tuple(spans)

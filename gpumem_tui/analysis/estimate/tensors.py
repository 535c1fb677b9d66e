"""What a checkpoint's header tells: how many elements in which format, and what follows from shapes.

Elements of floating formats count as parameters. Integers are packed or quantised
values, indices or buffers: their bytes are exact, but how many parameters they
stand for is not in the header and is not guessed.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

Shape = tuple[int, ...]


class Tensor(Protocol):
    """One tensor as stored."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102
    @property
    def shape(self) -> Shape: ...  # noqa: D102
    @property
    def bits(self) -> int: ...  # noqa: D102


SCALES = "F8_E8M0"
"""A format that only ever holds the scales of others."""

_BLOCK = re.compile(r"(.*?\.?(?:layers|layer|blocks|block|h)\.[0-9]+)\.")
_NOT_LINEAR = re.compile(r"embed|wte|wpe|lm_head|norm|shared\.weight|output\.weight$", re.IGNORECASE)


def is_parameter(tensor: Tensor) -> bool:
    """Whether each of its elements is one parameter."""
    return tensor.dtype.startswith(("F", "BF", "C")) and tensor.dtype != SCALES


def elements(tensors: Iterable[Tensor]) -> int:
    """Elements of all of them."""
    return sum(math.prod(tensor.shape) for tensor in tensors)


def by_format(tensors: Sequence[Tensor]) -> dict[str, list[Tensor]]:
    """Tensors by their stored format, the format with most bytes first."""
    groups: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    return dict(sorted(groups.items(), key=lambda item: -sum(math.prod(t.shape) * t.bits for t in item[1])))


def largest_block(tensors: Sequence[Tensor]) -> int | None:
    """Parameters of the largest repeated block (``…layers.7.…``); None where names show none."""
    blocks: dict[str, int] = {}
    for tensor in tensors:
        match = _BLOCK.match(tensor.name)
        if match and is_parameter(tensor):
            blocks[match[1]] = blocks.get(match[1], 0) + math.prod(tensor.shape)
    return max(blocks.values(), default=None)


def lora_shapes(tensors: Sequence[Tensor], rank: int, targets: Sequence[str]) -> list[Shape]:
    """Shapes of the adapters A (rank × in) and B (out × rank) of every matrix that is a target.

    A target is the last part of a module's name (``q_proj``), or ``all-linear``: every
    matrix whose name is not that of an embedding, a norm or the output layer.
    """
    shapes: list[Shape] = []
    for tensor in tensors:
        module, _, leaf = tensor.name.rpartition(".")
        if leaf != "weight" or len(tensor.shape) != 2 or not is_parameter(tensor):
            continue
        linear = "all-linear" in targets and not _NOT_LINEAR.search(tensor.name)
        if linear or module.rpartition(".")[2] in targets:
            rows, columns = tensor.shape
            shapes += [(rank, columns), (rows, rank)]
    return shapes


def factored_values(shapes: Iterable[Shape]) -> int:
    """Values of Adafactor's second moment: a row and a column for each matrix, all of a vector."""
    count = 0
    for shape in shapes:
        size = math.prod(shape)
        if len(shape) < 2 or not size:
            count += size
        else:
            count += size // shape[-1] + size // shape[-2]
    return count

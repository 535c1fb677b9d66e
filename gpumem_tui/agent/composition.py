"""What allocated memory is made of: parameters, gradients, optimizer state, buffers.

Storages are counted once, however many tensors share them; sharded tensors count as
what is local. Bounded: a walk that takes longer than its budget stops and says that
it is not complete. What is alive beyond these is the reader's to compute.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterator, List, Set, Tuple

EVERY_NS = 30_000_000_000
BUDGET_NS = 5_000_000
"""A walk at a step's end takes at most this long, at most every :data:`EVERY_NS`."""

KINDS = ("parameters", "gradients", "optimizer state", "buffers")


def _local(tensor: Any) -> Any:
    """The tensor that holds memory here: of a DTensor its local shard."""
    return getattr(tensor, "_local_tensor", tensor)


def _tensors(roots: List[Any], optimizers: List[Any]) -> Iterator[Tuple[str, Any]]:
    for root in roots:
        for parameter in root.parameters():
            yield "parameters", parameter
            if parameter.grad is not None:
                yield "gradients", parameter.grad
        for buffer in root.buffers():
            yield "buffers", buffer
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield "parameters", parameter
                if parameter.grad is not None:
                    yield "gradients", parameter.grad
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                if hasattr(value, "untyped_storage"):
                    yield "optimizer state", value


def walk(
    roots: List[Any], optimizers: List[Any], budget_ns: int = BUDGET_NS
) -> "Tuple[Dict[int, Dict[str, int]], bool, int]":
    """Bytes by device ordinal and kind; whether the walk was complete; how long it took in nanoseconds."""
    began = time.monotonic_ns()
    sizes: Dict[int, Dict[str, int]] = {}
    seen: Set[Tuple[int, int]] = set()
    complete = True
    for count, (kind, tensor) in enumerate(_tensors(roots, optimizers)):
        if count % 64 == 63 and time.monotonic_ns() - began > budget_ns:
            complete = False
            break
        local = _local(tensor)
        if local.device.type != "cuda":
            continue
        storage = local.untyped_storage()
        key = (local.device.index, storage.data_ptr())
        if key in seen:
            continue
        seen.add(key)
        of_device = sizes.setdefault(local.device.index, dict.fromkeys(KINDS, 0))
        of_device[kind] += storage.nbytes()
    return sizes, complete, time.monotonic_ns() - began

"""What allocated memory is made of: parameters, gradients, optimizer state, buffers, key-value caches.

Storages are counted once, however many tensors share them; sharded tensors count as
what is local. Bounded: a walk that takes longer than its budget stops, says that it is
not complete, and can go on later. What is alive beyond these is the reader's to compute.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from . import wire

EVERY_NS = 30_000_000_000
BUDGET_NS = 5_000_000
"""A walk at a step's end takes at most this long, at most every :data:`EVERY_NS`."""

DEPTH = 4
"""Containers within containers that are looked into for an optimizer's or a cache's tensors."""

LOOK_EVERY = 64
"""Tensors between two looks at the clock."""

KINDS = ("parameters", "gradients", "optimizer state", "buffers", "caches")


def _holding(tensor: Any) -> Sequence[Any]:
    """Of one tensor, those that hold its memory here: its local shard, a sparse one's indices and values."""
    if type(tensor).__module__ not in ("torch", "torch.nn.parameter"):
        tensor = getattr(tensor, "_local_tensor", tensor)
    if not tensor.is_cuda:
        return ()
    return (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,)


def _gradient(parameter: Any) -> Any:
    """None for a tensor that is no leaf: PyTorch would warn the user, who has not asked for it."""
    return parameter.grad if getattr(parameter, "is_leaf", False) else None


def _within(value: Any, depth: int = DEPTH) -> Iterator[Any]:
    """Tensors in a value: itself, or in dicts, lists and tuples; None for anything else, to count time."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif depth and isinstance(value, dict):
        for item in list(value.values()):
            if hasattr(item, "untyped_storage"):
                yield item
            else:
                yield from _within(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in list(value):
            yield from _within(item, depth - 1)
    else:
        yield None


def _of_cache(cache: Any) -> Iterator[Any]:
    """Keys and values of a Hugging Face cache: whatever tensors it and its layers hold."""
    parts = [cache]
    for name in ("layers", "self_attention_cache", "cross_attention_cache"):
        part = vars(cache).get(name)
        if isinstance(part, (list, tuple)):
            parts += part
        elif part is not None and hasattr(part, "__dict__"):
            parts += [part, *vars(part).get("layers", ())]
    for part in parts:
        yield from _within(vars(part))


def _modules(roots: Sequence[Any]) -> Iterator[Any]:
    """Every module once. ``modules()`` makes a name for each, which costs more than all the rest."""
    waiting, seen = list(roots), set()
    while waiting:
        module = waiting.pop()
        if module is not None and id(module) not in seen:
            seen.add(id(module))
            yield module
            waiting += module._modules.values()


def _units(
    roots: Sequence[Any], optimizers: Sequence[Any], caches: Sequence[Any]
) -> Iterator[Tuple[str, Any]]:
    """What is looked at at once, in an order that stays the same; a module stands for the time it takes."""
    for module in _modules(roots):
        yield "module", None
        for parameter in module._parameters.values():
            yield "parameter", parameter
        for buffer in module._buffers.values():
            yield "buffer", buffer
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield "parameter", parameter
        for state in list(optimizer.state.values()):
            yield "state", state
    for cache in caches:
        yield "cache", cache


class Walk:
    """One walk over all tensors, in as many pieces as its budget needs; keeps nothing of the user's alive.

    Its pieces belong together where the same objects hold as much at the beginning of each:
    that is for the caller to know.
    """

    def __init__(self) -> None:
        self.sizes: Dict[int, Dict[Tuple[str, Any], int]] = {}
        """Bytes by device ordinal, and by kind and dtype."""
        self.complete = False
        self.took_ns = 0
        """All pieces together."""
        self._units = 0
        """Units that are done."""
        self._parameters: Set[int] = set()
        """By identity: those that are found twice come once, they are the model's and the optimizer's."""
        self._storages: Set[int] = set()
        """By address, which is unique over the devices of a process."""

    def go_on(
        self,
        roots: Sequence[Any],
        optimizers: Sequence[Any],
        caches: Sequence[Any] = (),
        budget_ns: int = BUDGET_NS,
    ) -> None:
        """Look at what is left, within a budget; then it is complete."""
        began = wire.now_ns()
        gradients: Set[int] = set()
        count = 0
        for number, (what, unit) in enumerate(_units(roots, optimizers, caches), 1):
            if number <= self._units:
                continue
            self._units = number
            for kind, tensor in self._tensors(what, unit):
                count += 1
                if tensor is not None:
                    self._add(kind, tensor, gradients)
            if count >= LOOK_EVERY:
                count = 0
                if wire.now_ns() - began > budget_ns:
                    break
        else:
            self.complete = True
        self.took_ns += wire.now_ns() - began

    def _tensors(self, what: str, unit: Any) -> Iterator[Tuple[str, Any]]:
        if what == "state":
            for tensor in _within(unit):
                yield "optimizer state", tensor
        elif what == "cache":
            for tensor in _of_cache(unit):
                yield "caches", tensor
        elif what != "parameter":
            yield "buffers", unit
        elif id(unit) not in self._parameters:
            self._parameters.add(id(unit))
            yield "parameters", unit
            yield "gradients", _gradient(unit)

    def _add(self, kind: str, tensor: Any, gradients: Set[int]) -> None:
        """``gradients``: their storages in this piece; by the next, others may stand at these addresses."""
        for local in _holding(tensor):
            storage = local.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
            passing = kind == "gradients" and size == local.nbytes  # else a bucket of many, which stays
            seen = gradients if passing else self._storages
            if address not in seen and address not in self._storages:
                seen.add(address)
                of_device = self.sizes.setdefault(local.get_device(), {})
                key = (kind, local.dtype)
                of_device[key] = of_device.get(key, 0) + size


def of_optimizer(optimizer: Any, budget_ns: int = BUDGET_NS) -> "Optional[Dict[int, Tuple[int, int]]]":
    """(bytes of parameters with gradients, bytes of state) by device ordinal; None beyond the budget."""
    began = wire.now_ns()
    found: Dict[int, List[int]] = {}
    seen: Set[int] = set()
    parameters = (p for group in optimizer.param_groups for p in group["params"] if p.requires_grad)
    kinds = ((0, parameters), (1, (value for state in optimizer.state.values() for value in _within(state))))
    for kind, tensors in kinds:
        for count, tensor in enumerate(tensors):
            if count % 64 == 63 and wire.now_ns() - began > budget_ns:
                return None
            for part in _holding(tensor) if tensor is not None else ():
                storage = part.untyped_storage()
                if storage.data_ptr() not in seen:
                    seen.add(storage.data_ptr())
                    found.setdefault(part.get_device(), [0, 0])[kind] += storage.nbytes()
    return {ordinal: (sizes[0], sizes[1]) for ordinal, sizes in found.items()}

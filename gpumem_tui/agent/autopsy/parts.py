"""What allocated memory was made of: every live tensor of a device, by storage, named where possible.

Objects are found by the garbage collector and recognised by ``type()`` alone; what is
read of them is read through PyTorch's own C descriptors, with overrides off. So no
code of the user's runs: no ``__getattr__``, no ``__torch_function__``, no property.
Tensors that dispatch to Python are not touched: they wrap others, which are found.

What only C++ holds (activations saved for backward, workspaces) has no Python object:
the reader computes it as the rest of what is allocated.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import sys
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from .. import wire  # noqa: TID252  in the workload the package has another name
from .absent import Absent

BUDGET_NS = 150_000_000
"""A walk that takes longer stops and is not complete."""

LARGEST = 12
"""Tensors that are told one by one."""

MOST_OBJECTS = 10_000_000
"""Beyond this many blocks of Python's own memory, listing its objects would take too long."""

KINDS = ("parameters", "gradients", "optimizer state", "buffers", "KV cache", "other")

_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_class_name = type.__dict__["__name__"].__get__
_attributes = object.__getattribute__

OFTEN = 256
"""So many things are looked at between two looks at the clock."""

Named = Tuple[str, Optional[str], Any]
"""Kind, name, tensor."""


class _Descriptors:
    """What PyTorch's C code tells of a tensor, whatever its Python class says."""

    def __init__(self, torch: Any) -> None:
        base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
        self.is_cuda, self.device = base.is_cuda.__get__, base.device.__get__
        self.dtype, self.shape = base.dtype.__get__, base.shape.__get__
        self.is_leaf, self.grad = base.is_leaf.__get__, base.grad.__get__
        self.storage = getattr(base, "untyped_storage", None) or base.storage


def _family(base: type) -> List[type]:
    """A class and everything derived from it."""
    found, waiting, seen = [], [base], set()
    while waiting:
        cls = waiting.pop()
        if id(cls) not in seen:
            seen.add(id(cls))
            found.append(cls)
            waiting += type.__subclasses__(cls)
    return found


def _is_plain(cls: type, tensor: type) -> bool:
    """Whether tensors of this class hold memory themselves, and reading them runs no Python."""
    for base in _mro(cls):
        if base is tensor:
            return True
        if "__torch_dispatch__" in _class_dict(base):
            return False
    return False


class _Objects:
    """What the garbage collector knows, sorted: tensors, modules, optimizers, caches."""

    def __init__(self, torch: Any) -> None:
        self.tensors: List[Any] = []
        self.modules: List[Any] = []
        self.optimizers: List[Any] = []
        self.caches: List[Any] = []
        self.opaque = 0
        """Tensors of others' classes that could hold memory and may not be touched."""
        if sys.getallocatedblocks() > MOST_OBJECTS:
            raise Absent(
                "more than %d Python objects: finding the tensors would take too long" % MOST_OBJECTS
            )
        opaque: List[Any] = []
        lists: Dict[int, List[Any]] = {}
        for cls in _family(torch.Tensor):
            plain = _is_plain(cls, torch.Tensor)
            if plain or not str(_class_dict(cls).get("__module__")).startswith("torch."):
                lists[id(cls)] = self.tensors if plain else opaque
        lists.update((id(cls), self.modules) for cls in _family(torch.nn.Module))
        lists.update((id(cls), self.optimizers) for cls in _family(torch.optim.Optimizer))
        utils = sys.modules.get("transformers.cache_utils")
        for name in ("Cache", "CacheLayerMixin"):
            base = vars(utils).get(name) if utils is not None else None
            if isinstance(base, type):
                lists.update((id(cls), self.caches) for cls in _family(base))
        objects = gc.get_objects()
        for found in itertools.compress(objects, map(lists.__contains__, map(id, map(type, objects)))):
            lists[id(type(found))].append(found)
        self.opaque = len(opaque)


def _dict_of(thing: Any, name: str) -> Dict[Any, Any]:
    """An attribute of an object's own that is a dict; empty where it is none."""
    found = _attributes(thing, "__dict__").get(name)
    return found if dict in _mro(type(found)) else {}


def walk(
    torch: Any, ordinal: int, until_ns: int, modules: Sequence[Any] = (), optimizers: Sequence[Any] = ()
) -> Dict[str, Any]:
    """Live tensors of one device, as ``records.failure.Parts``. Raises :class:`Absent`.

    ``modules`` and ``optimizers`` are known to be in use: the collector does not list
    what ``gc.freeze`` has put aside.
    """
    began = wire.now_ns()
    with torch._C.DisableTorchFunction():
        objects = _Objects(torch)
        objects.modules += _further(modules, objects.modules)
        objects.optimizers += _further(optimizers, objects.optimizers)
        return _Walk(torch, ordinal, objects).run(began, until_ns)


def _further(things: Sequence[Any], known: List[Any]) -> List[Any]:
    seen = set(map(id, known))
    return [thing for thing in things if id(thing) not in seen]


class _OutOfTime(Exception):
    """The walk has taken as long as it may."""


class _Walk:
    """One walk over all tensors of one device."""

    def __init__(self, torch: Any, ordinal: int, objects: _Objects) -> None:
        self._of = _Descriptors(torch)
        self._torch, self._ordinal = torch, ordinal
        self._objects = objects
        self._names: Dict[int, str] = {}
        self._readable: Dict[int, bool] = {}
        self._shard = _shard_of()
        self._until_ns = 0
        self._names_until_ns = 0
        """Naming takes half of the time at most: what has no name is counted all the same."""
        self._all_named = True

    def run(self, began: int, until_ns: int) -> Dict[str, Any]:
        """Every storage once, by the first kind that claims it."""
        kinds: Dict[str, int] = dict.fromkeys(KINDS, 0)
        dtypes: Dict[Any, int] = {}
        entries: List[Tuple[int, int, Named]] = []
        seen: Set[int] = set()
        dtype_of = self._of.dtype
        complete = not self._objects.opaque and not gc.get_freeze_count()
        now = wire.now_ns()
        self._until_ns, self._names_until_ns = until_ns, now + (until_ns - now) // 2
        try:
            for count, (kind, name, found) in enumerate(self._all()):
                self._mind_time(count)
                tensor = self._local(found)
                size = self._new_bytes(tensor, seen)
                if size:
                    kinds[kind] += size
                    dtype = dtype_of(tensor)
                    dtypes[dtype] = dtypes.get(dtype, 0) + size
                    entries.append((size, -len(entries), (kind, name, tensor)))
        except _OutOfTime:
            complete = False
        return {
            "kinds": {kind: size for kind, size in kinds.items() if size},
            "dtypes": {_short(dtype): size for dtype, size in dtypes.items()},
            "largest": [self._told(size, named) for size, _, named in heapq.nlargest(LARGEST, entries)],
            "tensors": len(entries),
            "complete": complete and self._all_named,
            "took_ns": wire.now_ns() - began,
        }

    def _mind_time(self, count: int) -> None:
        if count % OFTEN == OFTEN - 1 and wire.now_ns() > self._until_ns:
            raise _OutOfTime

    def _may_name(self, count: int) -> bool:
        """Whether there is time for further names."""
        if self._all_named and count % OFTEN == OFTEN - 1 and wire.now_ns() > self._names_until_ns:
            self._all_named = False
        return self._all_named

    def _told(self, size: int, named: Named) -> Dict[str, Any]:
        kind, name, tensor = named
        shape, dtype = list(self._of.shape(tensor)), _short(self._of.dtype(tensor))
        return {"size_bytes": size, "kind": kind, "shape": shape, "dtype": dtype, "name": name}

    def _local(self, tensor: Any) -> Any:
        return (
            self._shard[1](tensor) if self._shard is not None and type(tensor) is self._shard[0] else tensor
        )

    def _new_bytes(self, tensor: Any, seen: Set[int]) -> int:
        """Bytes of a tensor's storage on the device; 0 where it has none there, or it was counted."""
        of = self._of
        if (
            not self._is_readable(tensor)
            or not of.is_cuda(tensor)
            or of.device(tensor).index != self._ordinal
        ):
            return 0
        try:
            storage = of.storage(tensor)
        except RuntimeError:
            return 0  # sparse and functorch's: the tensors that they consist of have their own
        if storage._cdata in seen:
            return 0
        seen.add(storage._cdata)
        return storage.nbytes()  # type: ignore[no-any-return]

    def _is_readable(self, thing: Any) -> bool:
        """Whether it is a tensor whose own C++ side can be read without running Python."""
        cls = type(thing)
        known = self._readable.get(id(cls))
        if known is None:
            shard = self._shard is not None and cls is self._shard[0]
            known = self._readable[id(cls)] = shard or _is_plain(cls, self._torch.Tensor)
        return known

    # --- kinds and names ----------------------------------------------------------------------

    def _all(self) -> Iterator[Named]:
        yield from self._of_caches()
        of_modules = list(self._of_modules())
        yield from (named for named in of_modules if named[0] == "parameters")
        of_optimizers = list(self._of_optimizers())
        yield from (named for named in of_optimizers if named[0] == "parameters")
        parameter = self._torch.nn.Parameter
        loose = [("parameters", None, t) for t in self._objects.tensors if type(t) is parameter]
        yield from loose
        yield from self._gradients([*of_modules, *of_optimizers, *loose])
        yield from (named for named in of_optimizers if named[0] != "parameters")
        yield from (named for named in of_modules if named[0] != "parameters")
        yield from (("other", None, tensor) for tensor in self._objects.tensors)

    def _gradients(self, named: List[Named]) -> Iterator[Named]:
        for count, (kind, name, tensor) in enumerate(named):
            self._mind_time(count)
            if kind == "parameters" and self._is_readable(tensor) and self._of.is_leaf(tensor):
                gradient = self._of.grad(tensor)
                if gradient is not None:
                    yield "gradients", name + ".grad" if name else None, gradient

    def _of_modules(self) -> Iterator[Named]:
        children: Set[int] = set()
        for count, module in enumerate(self._objects.modules):
            if not self._may_name(count):
                return  # without the roots no name would be right
            children.update(map(id, dict.values(_dict_of(module, "_modules"))))
        roots = [module for module in self._objects.modules if id(module) not in children]
        found = [(root, self._of_root(root)) for root in roots]
        found = [(root, members) for root, members in found if members]
        for root, members in found:
            prefix = _class_name(type(root)) + "." if len(found) > 1 else ""
            for kind, name, tensor in members:
                name = prefix + (name or "")
                self._names.setdefault(id(tensor), name)
                yield kind, name, tensor

    def _of_root(self, root: Any) -> List[Named]:
        members: List[Named] = []
        waiting, seen = [("", root)], {id(root)}
        for count in itertools.count():
            if not waiting or not self._may_name(count):
                break
            path, module = waiting.pop()
            for kind, attribute in (("parameters", "_parameters"), ("buffers", "_buffers")):
                for name, tensor in dict.items(_dict_of(module, attribute)):
                    if self._is_readable(tensor):
                        members.append((kind, path + str(name), tensor))
            for name, child in reversed(list(dict.items(_dict_of(module, "_modules")))):
                if child is not None and id(child) not in seen:
                    seen.add(id(child))
                    waiting.append(("%s%s." % (path, name), child))
        return members

    def _of_optimizers(self) -> Iterator[Named]:
        for optimizer in self._objects.optimizers:
            groups = _attributes(optimizer, "__dict__").get("param_groups")
            for group in groups if type(groups) is list else ():
                members = group.get("params") if type(group) is dict else None
                for parameter in members if type(members) is list else ():
                    yield "parameters", self._names.get(id(parameter)), parameter
            for owner, state in dict.items(_dict_of(optimizer, "state")):
                name = self._names.get(id(owner))
                for path, tensor in _tensors_within(state, self._torch.Tensor):
                    yield "optimizer state", "%s.%s" % (name, path) if name else None, tensor

    def _of_caches(self) -> Iterator[Named]:
        """Hugging Face's caches: of a cache its layers in order, then what is held outside layers."""
        for cache in self._objects.caches:
            layers = _attributes(cache, "__dict__").get("layers")
            for number, layer in enumerate(layers if type(layers) is list else ()):
                for path, tensor in _tensors_within(_attributes(layer, "__dict__"), self._torch.Tensor):
                    yield "KV cache", "layers.%d.%s" % (number, path), tensor
        for cache in self._objects.caches:
            for path, tensor in _tensors_within(_attributes(cache, "__dict__"), self._torch.Tensor):
                yield "KV cache", path, tensor


def _shard_of() -> Optional[Tuple[type, Any]]:
    """The class of distributed tensors, and how to get at the part that is here."""
    module = sys.modules.get("torch.distributed.tensor")
    cls = vars(module).get("DTensor") if module is not None else None
    slot = _class_dict(cls).get("_local_tensor") if cls is not None else None
    return (cls, slot.__get__) if slot is not None else None  # type: ignore[return-value]


def _tensors_within(value: Any, tensor: type, path: str = "", depth: int = 0) -> Iterator[Tuple[str, Any]]:
    """Tensors in plain dicts, lists and tuples, with their places."""
    cls = type(value)
    if tensor in _mro(cls):
        yield path, value
    elif depth < 4 and cls in (dict, list, tuple):
        items = value.items() if cls is dict else enumerate(value)
        for key, inner in list(items):
            if type(key) in (str, int):
                yield from _tensors_within(
                    inner, tensor, "%s.%s" % (path, key) if path else str(key), depth + 1
                )


def _short(dtype: Any) -> str:
    text = str(dtype)
    return text[len("torch.") :] if text.startswith("torch.") else text

"""Objects of the user's by identity: never kept alive, never asked for their own hash or equality."""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any, Dict, List, Optional, Tuple


class Seen:
    """Objects by identity, without keeping them alive and without calling their own hash or equality."""

    def __init__(self) -> None:
        self._refs: Dict[int, Any] = {}

    def add(self, thing: Any) -> None:
        """Remember an object."""
        if thing not in self:
            self._refs[id(thing)] = weakref.ref(thing)

    def __contains__(self, thing: Any) -> bool:
        ref = self._refs.get(id(thing))
        return ref is not None and ref() is thing

    def living(self) -> List[Any]:
        """Those that still exist."""
        found = []
        for key, ref in list(self._refs.items()):
            thing = ref()
            if thing is None:
                self._refs.pop(key, None)
            else:
                found.append(thing)
        return found


WRAPPERS = (
    "OptimizedModule",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "DataParallel",
    "DeepSpeedEngine",
)
"""Modules that only wrap another, whose name is the one that people know."""


def core_of(module: Any) -> Any:
    """The module within its wrappers."""
    while type(module).__name__ in WRAPPERS:
        inner = getattr(module, "_orig_mod", None) or getattr(module, "module", None)
        if inner is None:
            break
        module = inner
    return module


def known_name(module: Any) -> str:
    """The class as its author named it: ``fully_shard`` makes a class ``FSDPNet`` of ``Net``."""
    kind = type(module)
    bases = kind.__bases__
    if len(bases) == 2 and bases[0].__name__ == "FSDPModule":
        kind = bases[1]
    return kind.__name__


def module_of(function: Any) -> Any:
    """The module whose method, or a partial call of it, this is; the module itself; None for others."""
    while isinstance(function, functools.partial):
        function = function.args[0] if function.args and _is_module(function.args[0]) else function.func
    if isinstance(function, types.MethodType):
        function = function.__self__
    return function if _is_module(function) else None


def _is_module(thing: Any) -> bool:
    return hasattr(type(thing), "_call_impl") and "_parameters" in getattr(thing, "__dict__", ())


class Model:
    """What is known of a model, whatever it is wrapped in."""

    __slots__ = ("fixed", "identity", "ref", "trained")

    def __init__(self, core: Any) -> None:
        self.ref = weakref.ref(core)
        self.identity = id(core)
        self.trained = False
        """It has had a training forward."""
        self.fixed = False
        """It trains in evaluation mode: with what is fixed in it."""


class Root:
    """A root module: its model, its name, and where its first parameter is, without a walk at every call."""

    __slots__ = ("called", "entered", "model", "module", "name", "owner")

    def __init__(self, module: Any, owner: Any, called: str, model: Model, name: str) -> None:
        self.module = weakref.ref(module)
        self.owner, self.called = weakref.ref(owner), called
        self.model, self.name = model, name
        self.entered = False
        """Whether a span has begun for it."""


MOST = 4096
"""Root modules that are remembered; a program may make a new one for each call."""


class Roots:
    """Root modules by identity, and the models in them."""

    def __init__(self) -> None:
        self._found: Dict[int, Root] = {}
        self._models: Dict[int, Model] = {}

    def look_up(self, module: Any) -> Optional[Tuple[Root, Any]]:
        """A module and its first parameter, or what now is in its place; None for one without parameters."""
        root = self._found.get(id(module))
        if root is not None and root.module() is module:
            owner = root.owner()
            parameter = owner._parameters.get(root.called) if owner is not None else None
            if parameter is not None and root.model.ref() is not None:
                return root, parameter
        return self._find(module)

    def model(self, core: Any) -> Model:
        """What is known of the model whose innermost module this is."""
        model = self._models.get(id(core))
        if model is None or model.ref() is not core:
            if len(self._models) > MOST:
                self._models = {key: m for key, m in self._models.items() if m.ref() is not None}
            model = self._models[id(core)] = Model(core)
        return model

    def _find(self, module: Any) -> Optional[Tuple[Root, Any]]:
        if module.__dict__.get("_is_replica"):  # of DataParallel, whose call is under way on another thread
            return None
        owner, called, first = _first_parameter(module)
        if first is None:
            first = next(module.parameters(), None)  # in a way of its own: looked for at each call
        if first is None:
            return None
        core = core_of(module)
        root = Root(module, owner, called, self.model(core), known_name(core))
        if len(self._found) > MOST:
            self._found = {key: r for key, r in self._found.items() if r.module() is not None}
        self._found[id(module)] = root
        return root, first


def _first_parameter(module: Any) -> Tuple[Any, str, Any]:
    """What ``next(module.named_parameters())`` would find, and the module that owns it.

    Without that call: users override what it calls in turn.
    """
    met, waiting = set(), [module]
    while waiting:
        owner = waiting.pop()
        met.add(id(owner))
        for called, parameter in owner._parameters.items():
            if parameter is not None:
                return owner, called, parameter
        inner = [each for each in owner._modules.values() if each is not None and id(each) not in met]
        waiting += reversed(inner)
    return module, "", None

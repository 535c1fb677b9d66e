"""Acts once after the user's own ``import torch`` (or another named module). Imports nothing itself.

A finder stands first in ``sys.meta_path`` until the module was imported; it finds what
the others find and sets the loader's ``exec_module`` aside for one call. Looking the
module up without importing it (``importlib.util.find_spec``) changes nothing.
"""

from __future__ import annotations

import importlib.machinery
import sys
from _thread import _local

from .guard import contain

_bootstrap: Any = importlib.machinery.SourceFileLoader.exec_module

TYPE_CHECKING = False  # as typing's, which is not loaded for this
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    _Act = Callable[[Any], None]


class _Finder:
    """A finder of ``sys.meta_path``, by what it does: a base class would load more of importlib."""

    def __init__(self) -> None:
        self.waiting: Dict[str, _Act] = {}
        self._looking = _local()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """The other finders' spec, its loader told to act after the module has run."""
        act = self.waiting.get(fullname)
        if act is None or getattr(self._looking, "now", False):
            return None
        self._looking.now = True
        try:
            spec = _find(fullname, path, target)
        finally:
            self._looking.now = False
        loader = getattr(spec, "loader", None)
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        original = loader.exec_module

        def exec_module(module: Any) -> None:
            original(module)
            self.done(fullname, loader)
            _run(fullname, act, module)

        # Python leaves the import system's own frames out of tracebacks, by file name: this is one.
        exec_module.__code__ = exec_module.__code__.replace(co_filename=_bootstrap.__code__.co_filename)
        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # a loader without a dict: never seen for torch; phases are missing then
        return spec

    def done(self, fullname: str, loader: Any) -> None:
        """Take back what was set aside for this module."""
        self.waiting.pop(fullname, None)
        loader.__dict__.pop("exec_module", None)
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)


def _find(fullname: str, path: Any, target: Any) -> Any:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(fullname, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


def _run(fullname: str, act: _Act, module: Any) -> None:
    try:
        act(module)
    except Exception as error:  # noqa: BLE001  the named boundary: the user's import must succeed
        contain("after import %s" % fullname, error)


_finder: Optional[_Finder] = None


def after_import(fullname: str, act: _Act) -> None:
    """Call ``act(module)`` once, right after the user's import of ``fullname``, or now if it is there."""
    global _finder
    if fullname in sys.modules:
        _run(fullname, act, sys.modules[fullname])
        return
    if _finder is None:
        _finder = _Finder()
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting[fullname] = act

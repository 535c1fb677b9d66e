"""Found first on PYTHONPATH by every Python of a monitored run: starts the agent, then the user's own.

Parses in any Python that the workload may start, and acts from 3.8 on. Does nothing
unless ``GPUMEM_TUI_RUN`` names a run directory that is there. Silent, contained, and
gone from ``sys.path`` afterwards.
"""

import os
import sys


def _chain(here):
    # type: (str) -> None
    """Run the ``sitecustomize`` that would have been found without ours; its errors are the user's."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    own = os.path.join(here, "sitecustomize.py")
    if spec is None or spec.loader is None or spec.origin == own:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start(here):
    # type: (str) -> None
    """Load the agent by path, under a name of its own: this interpreter may not have the package.

    By hand, because ``importlib.util`` alone would cost as much as all the rest.
    """
    from importlib.machinery import ModuleSpec, SourceFileLoader

    package = os.path.dirname(here)
    name, path = "_gpumem_tui_agent", os.path.join(package, "__init__.py")
    loader = SourceFileLoader(name, path)
    spec = ModuleSpec(name, loader, origin=path, is_package=True)
    spec.submodule_search_locations = [package]
    module = type(sys)(name)
    module.__spec__, module.__loader__, module.__file__ = spec, loader, path
    module.__package__, module.__path__ = name, [package]
    sys.modules[name] = module
    loader.exec_module(module)
    module.start()


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
_run = os.environ.get("GPUMEM_TUI_RUN")
if sys.version_info >= (3, 8) and _run and os.path.isdir(_run):
    try:
        _start(_here)
    except Exception:  # the named boundary: no error of ours at the start of the user's Python
        if os.environ.get("GPUMEM_TUI_RAISE"):
            raise
if sys.version_info >= (3, 4):
    _chain(_here)

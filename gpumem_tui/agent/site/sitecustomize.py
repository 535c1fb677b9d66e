"""Found first on PYTHONPATH by every Python of a monitored run: starts the agent, then the user's own.

Does nothing unless ``GPUMEM_TUI_RUN`` names a run directory that is there. Silent,
contained, and gone from ``sys.path`` afterwards.
"""

import os
import sys


def _chain(here: str) -> None:
    """Run the ``sitecustomize`` that would have been found without ours; its errors are the user's."""
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    own = os.path.join(here, "sitecustomize.py")
    if spec is None or spec.loader is None or spec.origin == own:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start(here: str) -> None:
    """Load the agent by path, under a name of its own: this interpreter may not have the package."""
    import importlib.util

    package = os.path.dirname(here)
    spec = importlib.util.spec_from_file_location(
        "_gpumem_tui_agent", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_gpumem_tui_agent"] = module
    spec.loader.exec_module(module)
    module.start()


_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
if os.environ.get("GPUMEM_TUI_RUN") and os.path.isdir(os.environ["GPUMEM_TUI_RUN"]):
    try:
        _start(_here)
    except Exception:  # the named boundary: no error of ours at the start of the user's Python
        if os.environ.get("GPUMEM_TUI_RAISE"):
            raise
_chain(_here)

"""What a monitored workload's environment has that the bare one has not."""

import os
from collections.abc import Mapping
from pathlib import Path

from gpumem_tui import agent

AGENT_SITE = Path(agent.__file__).parent / "site"
"""Folder of the ``sitecustomize`` that starts the agent."""


def workload_environment(
    base: Mapping[str, str],
    run: Path,
    hertz: float,
    reset_peaks: bool = True,
    strict: bool = False,
    history: bool = False,
) -> dict[str, str]:
    """``base`` with the agent's folder first on ``PYTHONPATH`` and the ``GPUMEM_TUI_*`` that it reads.

    A run inside a run belongs to the inner one: the outer's folder is not doubled.
    """
    environment = dict(base)
    search = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry]
    search = [str(AGENT_SITE), *(entry for entry in search if entry != str(AGENT_SITE))]
    environment["PYTHONPATH"] = os.pathsep.join(search)
    environment["GPUMEM_TUI_RUN"] = str(run)
    environment["GPUMEM_TUI_HERTZ"] = f"{hertz:g}"
    if not reset_peaks:
        environment["GPUMEM_TUI_PEAKS"] = "keep"
    if strict:
        environment["GPUMEM_TUI_PROTOCOL"] = "strict"
    if history:
        environment["GPUMEM_TUI_HISTORY"] = "1"
    return environment

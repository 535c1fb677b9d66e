"""Programs under the agent alone: no keeper, no recorder, just the environment that starts it."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpumem_tui import records
from gpumem_tui.keeper import workload_environment


class AgentRun:
    """A run directory that only the agent writes into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for folder in ("journal", "rings", "failures"):
            (path / folder).mkdir(parents=True)

    def environment(self, base=None, hertz=50.0, **more) -> dict[str, str]:
        """What a program needs to run under the agent; our own errors are raised."""
        made = workload_environment(base or {}, self.path, hertz)
        kept = ("PYTHONPATH", "GPUMEM_TUI_RUN", "GPUMEM_TUI_HERTZ")
        return {**{name: made[name] for name in kept}, "GPUMEM_TUI_RAISE": "1", **more}

    def plain(self, code: str, python=sys.executable, **options) -> "subprocess.CompletedProcess[str]":
        """Run code under the agent without any card."""
        import os

        env = {**os.environ, **self.environment(os.environ), **options.pop("env", {})}
        return subprocess.run(
            [str(python), *options.pop("flags", ()), "-c", textwrap.dedent(code)],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )

    def writers(self) -> list[str]:
        """Processes that have written, by journal name."""
        return sorted({path.name.split(".")[0] for path in (self.path / "journal").glob("rank-*")})

    def records(self, kind: type | None = None, pid: int | None = None) -> list:
        """Every record of every process, or those of one kind, or of one process."""
        found = [
            records.decode_line(line)
            for path in sorted((self.path / "journal").glob("rank-*" if pid is None else f"rank-{pid}-*"))
            for line in path.read_bytes().splitlines()[1:]
        ]
        return found if kind is None else [record for record in found if isinstance(record, kind)]


@pytest.fixture
def agent_run(tmp_path):
    """A fresh run directory for the agent."""
    return AgentRun(tmp_path / "a-run")

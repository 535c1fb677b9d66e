"""The product as users start it: the command line, a home of its own, real processes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumem_tui.journal import rundir
from gpumem_tui.session import Recording
from gpumem_tui.simcard import SimulatedMachine

COMMAND = [sys.executable, "-m", "gpumem_tui"]
FOREIGN = ("SIMCARD_", "LD_PRELOAD", "CUDA_", "PYTORCH_", "NCCL_", "GPUMEM_")


class Gpumem:
    """Runs ``gpumem-tui`` in a home of its own; ends what it has started with the test."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.folder = folder
        self._processes: list[subprocess.Popen] = []

    @property
    def environment(self) -> dict[str, str]:
        """Ours, without what the tests' own surroundings may have set."""
        base = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        return {**base, **self.own}

    @property
    def own(self) -> dict[str, str]:
        """Where recordings go."""
        return {"GPUMEM_TUI_HOME": str(self.home)}

    def start(self, *words, env=None, **options) -> subprocess.Popen:
        """Start a verb."""
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        } | options
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)], env={**self.environment, **(env or {})}, cwd=self.folder, **options
        )
        self._processes.append(process)
        return process

    def __call__(
        self, *words, exits=0, timeout=120, env=None, stdin=None
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a verb to its end."""
        process = self.start(
            *words, env=env, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL
        )
        out, err = process.communicate(stdin, timeout=timeout)
        assert exits is None or process.returncode == exits, (process.returncode, out[-2000:], err[-3000:])
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def run(self, command, *options, **more) -> "subprocess.CompletedProcess[bytes]":
        """``run --anyway --batch`` of a command that needs no card."""
        return self("run", "--anyway", "--batch", *options, "--", *command, **more)

    def latest(self) -> rundir.RunDirectory:
        """The last run."""
        return rundir.find("latest", {"GPUMEM_TUI_HOME": str(self.home)})

    def wait_for_run(self, seconds=20.0) -> rundir.RunDirectory:
        """The run that is being started, once it has its run.json and a keeper."""
        wait_until(lambda: list(self.home.glob("runs/*/journal/keeper-*")), seconds)
        return self.latest()

    def recording(self) -> Recording:
        """The last run, read."""
        return Recording(self.latest())

    def report(self, *words) -> dict:
        """``report --json``, parsed."""
        return json.loads(self("report", *words, "--json").stdout)

    def machine(self, libraries) -> SimulatedMachine:
        """The simulated machine of the last run."""
        return SimulatedMachine(libraries, self.latest().path / "simcard.state")

    def hold(self, libraries, device, size, name="stranger"):
        """A foreign process on the last run's machine."""
        process = self.machine(libraries).hold(device, size, name)
        self._processes.append(process)
        return process

    def end(self) -> None:
        """End everything, the workloads of detached runs as well."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        if self.home.exists():
            subprocess.run(["pkill", "-KILL", "-f", str(self.home)], check=False)
            for entry in rundir.list_runs({"GPUMEM_TUI_HOME": str(self.home)}):
                if entry.facts is not None:
                    Recording(entry.run).read()


def wait_until(condition, seconds=20.0, what="it"):
    """Wait for a condition; its value."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"{what} did not happen within {seconds} s"
        time.sleep(0.05)


@pytest.fixture
def gpumem(tmp_path):
    """The command line with a home of its own."""
    made = Gpumem(tmp_path)
    yield made
    made.end()

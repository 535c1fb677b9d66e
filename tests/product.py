"""The product as users start it: the command line, a home of its own, real processes."""

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from terminal import Terminal

from gpumem_tui import cli
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
        """Where recordings and settings go."""
        return {"GPUMEM_TUI_HOME": str(self.home), "XDG_CONFIG_HOME": str(self.folder / "config")}

    def start(self, *words, env=None, **options) -> subprocess.Popen:
        """Start a verb."""
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "cwd": self.folder,
        } | options
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)], env={**self.environment, **(env or {})}, **options
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

    def told(self, *words) -> "subprocess.CompletedProcess[str]":
        """A verb that starts no process, in this one: a tenth of the time."""
        return told(words, self.own, self.folder)

    def run(self, command, *options, **more) -> "subprocess.CompletedProcess[bytes]":
        """``run --anyway --batch`` of a command that needs no card."""
        return self("run", "--anyway", "--batch", *options, "--", *command, **more)

    def latest(self) -> rundir.RunDirectory:
        """The last run."""
        return rundir.find("latest", {"GPUMEM_TUI_HOME": str(self.home)})

    def wait_for_run(self, seconds=20.0) -> rundir.RunDirectory:
        """The run that is being started, once it has its run.json and a keeper."""
        for found in ("journal/keeper-*", "run.json"):
            wait_until(lambda found=found: list(self.home.glob(f"runs/*/{found}")), seconds)
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
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    if process.environ().get("GPUMEM_TUI_HOME") == str(self.home):
                        process.kill()
            for entry in rundir.list_runs({"GPUMEM_TUI_HOME": str(self.home)}):
                if entry.facts is not None:
                    Recording(entry.run).read()


def told(words, environment, folder, stdin=b"") -> "subprocess.CompletedProcess[str]":
    """The exit code and the streams of the command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8", errors="replace"))
        patch.chdir(folder)
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


PATIENCE = 3
"""How many times longer than on an idle machine a condition may take to come; what comes costs nothing."""


def wait_until(condition, seconds=20.0, what="it"):
    """Wait for a condition that comes within so many seconds on an idle machine; its value."""
    until = time.monotonic() + PATIENCE * seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < until, f"{what} did not happen within {PATIENCE * seconds} s"
        time.sleep(0.05)


@pytest.fixture
def gpumem(tmp_path):
    """The command line with a home of its own."""
    made = Gpumem(tmp_path)
    yield made
    made.end()


@pytest.fixture
def on_pty(gpumem):
    """Starts verbs on ptys of their own; ends them with the test."""
    made = []

    def start(*words, **options):
        made.append(Terminal([*COMMAND, *map(str, words)], gpumem.environment, gpumem.folder, **options))
        return made[-1]

    yield start
    for each in made:
        each.child.close(force=True)

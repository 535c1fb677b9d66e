"""The simulated card as a fixture: real PyTorch, real out-of-memory errors, no GPU.

``simcard`` is a machine of its own for one test (one 24 GiB card, or what
``@pytest.mark.simcard(devices=["24GiB", "8GiB"])`` asks for); ``make_simcard`` makes
several. Where it cannot run, the test is skipped with the reason; with
``GPUMEM_TUI_REQUIRE_SIMCARD=1`` that is a failure instead. The libraries are built once
and kept in the user's cache, as for every user of the product. Whatever a test starts
on a machine has ended when the test has.
"""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import hypothesis
import pytest
from agentrun import agent_run  # noqa: F401  a fixture
from product import gpumem, on_pty  # noqa: F401  likewise
from thorough import EXAMPLES
from tui.slowline import slow, terminal  # noqa: F401  likewise

from gpumem_tui.errors import MissingRequirement
from gpumem_tui.simcard import DeviceStatus, Libraries, MachineStatus, SimulatedMachine, build
from gpumem_tui.simcard import outside as outside_module
from gpumem_tui.units import parse_size

hypothesis.settings.register_profile(
    "gpumem",
    deadline=None,  # a busy machine is no finding
    max_examples=EXAMPLES,
)
hypothesis.settings.load_profile("gpumem")

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    # Ignored under nohup, and in what a shell starts with &. Children inherit that, but not a handler.
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

REQUIRE = "GPUMEM_TUI_REQUIRE_SIMCARD"

FOREIGN = ("SIMCARD_", "LD_PRELOAD", "CUDA_", "PYTORCH_", "TORCH_", "NCCL_", "GPUMEM_")
"""Starts of variables that a workload must not inherit from whoever runs the tests."""


QUICK_END = """
import atexit, os, sys, threading
threading._shutdown(); atexit._run_exitfuncs(); sys.stdout.flush(); sys.stderr.flush(); os._exit(0)
"""
"""How a script that came to its end ends: in order, but for taking torch's objects apart for a second."""


class SimCard:
    """A simulated machine, and the processes that a test runs on it."""

    outside = Path(outside_module.__file__)
    """A module that a workload may load by its path: memory outside PyTorch's allocator."""

    def __init__(self, libraries: Libraries, folder: Path, devices: Sequence[str | int], **options) -> None:
        self.libraries = libraries
        self.folder = folder
        self.state = folder / "simcard.state"
        sizes = [parse_size(d) if isinstance(d, str) else d for d in devices]
        self.machine = SimulatedMachine.create(libraries, self.state, devices=sizes, **options)
        self._processes: list[subprocess.Popen[str]] = []

    def environment(
        self,
        env: Mapping[str, str] | None = None,
        *,
        nvml: bool = True,
        settings: Mapping[str, float | str] | None = None,
        visible: str | None = None,
    ) -> dict[str, str]:
        """For a workload; ``visible`` is CUDA_VISIBLE_DEVICES, ``settings`` are this process's own."""
        base = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        if visible is not None:
            base["CUDA_VISIBLE_DEVICES"] = visible
        base.update(env or {})
        return self.machine.environment(base, nvml=nvml, settings=settings)

    def start(self, command: Sequence[str | Path], *, popen: Mapping | None = None, **environment):
        """Start a command on the card, with pipes for all its streams; it is ended with the test."""
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [str(word) for word in command],
            env=self.environment(**environment),
            text=True,
            start_new_session=True,  # so that what it starts ends with it
            **(options | dict(popen or {})),
        )
        self._processes.append(process)
        return process

    def run(
        self, command: Sequence[str | Path], *, exits: int | None = 0, timeout: float = 120, **environment
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on the card to its end; ``exits`` is its exit code (``None``: anything)."""
        process = self.start(command, **environment)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._end(process)
            raise
        assert exits is None or process.returncode == exits, (
            f"ended with {process.returncode}, not {exits}\n{out[-3000:]}\n{err[-5000:]}"
        )
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def python(self, source: str | Path, *args: str, **options) -> "subprocess.CompletedProcess[str]":
        """Run Python code, or a script by its path, on the card; options as for :meth:`run`."""
        return self.run(self._python(source, args), **options)

    def start_python(self, source: str | Path, *args: str, **options) -> "subprocess.Popen[str]":
        """Start Python code, or a script; options as for :meth:`start`."""
        return self.start(self._python(source, args), **options)

    @staticmethod
    def _python(source: str | Path, args: Sequence[str]) -> list[str]:
        if isinstance(source, Path):
            return [sys.executable, str(source), *args]
        return [sys.executable, "-c", f"{textwrap.dedent(source)}\n{QUICK_END}", *args]

    def hold(self, size: str | int, device: int = 0, name: str = "holder") -> "subprocess.Popen[str]":
        """Start another process that holds so much."""
        process = self.machine.hold(device, parse_size(size) if isinstance(size, str) else size, name)
        self._processes.append(process)
        return process

    def fault(self, **settings: float | str) -> None:
        """Change settings for all processes of the machine, at once."""
        self.machine.set(**settings)

    def status(self) -> MachineStatus:
        return self.machine.status()

    def device(self, index: int = 0) -> DeviceStatus:
        return self.machine.status().devices[index]

    @staticmethod
    def _end(process: "subprocess.Popen[str]") -> None:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(process.pid) == process.pid:
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(BrokenPipeError):  # what is left in a buffer for the dead
                if stream:
                    stream.close()

    def end(self) -> None:
        """Kill what still runs. The order is that of starting."""
        for process in self._processes:
            self._end(process)


@pytest.fixture(scope="session")
def simcard_libraries() -> Libraries:
    """The libraries for the PyTorch of the interpreter that runs the tests."""
    try:
        return build(Path(sys.executable))
    except MissingRequirement as error:
        if os.environ.get(REQUIRE, "") not in ("", "0"):
            pytest.fail(f"{REQUIRE} is set, but {error}")
        pytest.skip(f"no simulated card: {error}")


@pytest.fixture
def make_simcard(simcard_libraries: Libraries, tmp_path: Path) -> Iterator:
    """A function that makes machines: ``make_simcard("24GiB", "8GiB", compute_capability="9.0")``."""
    made: list[SimCard] = []

    def make(*devices: str | int, **options) -> SimCard:
        folder = tmp_path / f"simcard{len(made)}"
        folder.mkdir()
        libraries = options.pop("libraries", simcard_libraries)
        card = SimCard(libraries, folder, devices or ["24GiB"], **options)
        made.append(card)
        return card

    yield make
    for card in made:
        card.end()


@pytest.fixture
def simcard(request: pytest.FixtureRequest, make_simcard) -> SimCard:
    """One machine; its devices and options are those of the nearest ``simcard`` mark that names any."""
    asked = next((mark.kwargs for mark in request.node.iter_markers("simcard") if mark.kwargs), {})
    options = dict(asked)
    return make_simcard(*options.pop("devices", ()), **options)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs the simulated card is marked so, whether or not it says it itself."""
    for item in items:
        if "simcard_libraries" in getattr(item, "fixturenames", ()):
            item.add_marker("simcard")

"""From a plan to a run: the run directory, the recorder, the keeper, and the view that opens on it."""

import contextlib
import getpass
import os
import platform
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import gpumem_tui
from gpumem_tui.agent import wire
from gpumem_tui.cli.simulation import Simulation
from gpumem_tui.errors import CannotRecord, GpumemError, RecordingExists
from gpumem_tui.journal import rundir
from gpumem_tui.journal.runfile import RunFile, namespaces, privately
from gpumem_tui.keeper import end_like, keep_batch, keep_terminal, workload_environment
from gpumem_tui.keeper.batch import find_program
from gpumem_tui.records.revision import Revision
from gpumem_tui.sources.revision import revision_of, working_folder
from gpumem_tui.units import parse_size

if TYPE_CHECKING:
    from gpumem_tui.simcard import SimulatedMachine

KEPT_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_MODULE_LOADING",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTHONHASHSEED",
    "NCCL_BUFFSIZE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_MAX_NCHANNELS",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
)
"""The only environment variables that a recording keeps."""

SEED_OPTIONS = ("--seed", "--random-seed", "--random_seed", "--manual-seed", "--manual_seed")
"""Options of a training script that everybody reads as its seed."""


@dataclass(frozen=True)
class Plan:
    """What to run, and how."""

    command: list[str]
    how: str
    """``batch``, ``terminal`` (with a view) or ``detached`` (a terminal, no view)."""
    name: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    simulation: Simulation | None = None
    hertz: float = 10.0
    reset_peaks: bool = True
    strict: bool = False
    """Synchronise at every phase boundary, as a benchmark protocol asks."""
    history: bool = False
    """Have the allocator's history recorded, and dumped where memory runs out."""
    disk_budget: str = "512MiB"
    declared: dict[str, str] = field(default_factory=dict)
    warmup: str | None = None
    foresight: bool = False
    """Say on standard error, after a simulated batch run, what a real card would need."""
    beside: "Callable[[SimulatedMachine | None, int, int | None], None] | None" = None
    """Called in the keeper's process before the workload starts, with the machine and the keeper."""


def launch(plan: Plan) -> int:
    """Start the run and stay with it as the plan says.

    Batch: does not return, this process ends as the workload ended. Terminal: the
    view's exit code. Raises :class:`GpumemError` before anything was started.
    """
    find_program(plan.command, os.environ)  # before anything is made
    budget_bytes = parse_size(plan.disk_budget, what="--disk-budget")
    revision = revision_of(working_folder())
    step = slurm_step(os.environ) if plan.name is None and plan.simulation is None else None
    if step is not None and plan.how == "batch":
        return _join_step(plan, step, budget_bytes, revision)
    run = rundir.create(plan.name or rundir.new_name(plan.command))
    machine = None
    try:
        if plan.simulation is not None:
            machine = plan.simulation.machine(plan.command, run.simcard_file)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)  # nothing ran: leave no empty recording behind
        raise
    environment = workload_environment(
        machine.environment() if machine is not None else os.environ,
        run.path,
        plan.hertz,
        plan.reset_peaks,
        plan.strict,
        plan.history,
    )

    def ready(keeper_pid: int) -> None:
        try:
            run.write_facts(_facts(plan, run, machine, budget_bytes, keeper_pid, revision))
        except BaseException:
            shutil.rmtree(run.path, ignore_errors=True)  # likewise
            raise
        start_recorder(run, machine)
        if plan.beside is not None:
            plan.beside(machine, keeper_pid, wire.started_ticks(keeper_pid))

    if plan.how == "batch":
        ending = keep_batch(run.path, plan.command, environment, lambda: ready(os.getpid()))
        if plan.foresight:
            with contextlib.suppress(
                GpumemError
            ):  # the status is the workload's, whatever the recording is like
                print_foresight(run)
        end_like(ending)
    size = shutil.get_terminal_size()
    modes = None
    with contextlib.suppress(termios.error):
        modes = termios.tcgetattr(0)
    keep_terminal(run.path, plan.command, environment, (size.lines, size.columns), modes, ready)
    if plan.how == "detached":
        print(f"started {run.name}; watch it with: gpumem-tui attach {run.name}")
        return 0
    from gpumem_tui.cli.attach import watch

    code = watch(run, started_here=True)
    if machine is not None:
        print_foresight(run)
    return code


def print_foresight(run: rundir.RunDirectory) -> None:
    """What real cards would need, on standard error."""
    from gpumem_tui.session import Recording
    from gpumem_tui.views.foresight import assumption_sentences, foresight_sentences, invented_sentences

    facts = Recording(run).read().facts
    said = foresight_sentences(facts.foresight) + invented_sentences(facts.foresight)
    for sentence in said + assumption_sentences(facts.assumptions):
        print(sentence, file=sys.stderr)


def _facts(
    plan: Plan,
    run: rundir.RunDirectory,
    machine: "SimulatedMachine | None",
    budget_bytes: int,
    keeper_pid: int,
    revision: Revision,
) -> RunFile:
    simulated = None
    seed, seed_source = seed_of(plan.labels, plan.command, os.environ)
    if plan.simulation is not None and machine is not None:
        simulated = plan.simulation.facts(machine)
    return RunFile(
        namespaces=namespaces(),
        run=run.name,
        command=plan.command,
        cwd=str(working_folder()),
        host=platform.node(),
        user=_user(),
        boot=wire.boot_id(),
        wall_ns=time.time_ns(),
        t_ns=wire.now_ns(),
        version=gpumem_tui.__version__,
        interactive=plan.how != "batch",
        keeper_pid=keeper_pid,
        keeper_ticks=wire.started_ticks(keeper_pid),
        simulated=simulated,
        labels=plan.labels,
        protocol="strict" if plan.strict else "observe",
        environment={name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ},
        hertz=plan.hertz,
        disk_budget_bytes=budget_bytes,
        reset_peaks=plan.reset_peaks,
        revision=revision,
        seed=seed,
        seed_source=seed_source,
        declared=plan.declared,
        warmup=plan.warmup,
    )


def seed_of(
    labels: Mapping[str, str], command: Sequence[str], environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The seed that this run was given, and where that is said; (None, None) where nobody says it."""
    if "seed" in labels:
        return labels["seed"], "label"
    for word, after in zip(command, (*command[1:], ""), strict=True):
        name, sign, value = word.partition("=")
        if name in SEED_OPTIONS and (value if sign else after):
            return value if sign else after, "command line"
    seed = environment.get("PYTHONHASHSEED")
    return (seed, "PYTHONHASHSEED") if seed else (None, None)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in some containers
        return str(os.getuid())


def start_recorder(run: rundir.RunDirectory, machine: "SimulatedMachine | None") -> None:
    """Start the recorder beside the run. A recorder that cannot start leaves the run as it is."""
    environment: Mapping[str, str] = os.environ
    if machine is not None:
        environment = machine.monitor_environment()
    log_file = run.path / "recorder.log"
    with contextlib.suppress(OSError), open(log_file, "ab", opener=privately) as log:
        subprocess.Popen(
            [sys.executable, "-m", "gpumem_tui.recorder", str(run.path)],
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def slurm_step(environment: Mapping[str, str]) -> str | None:
    """One name for all tasks of a Slurm job step on this node; None outside a step of several tasks."""
    job, step, node = (environment.get(name) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID"))
    if not job or not step or (environment.get("SLURM_NTASKS") or "1") == "1":
        return None
    return f"slurm-{job}.{step}-node{node or 0}"


def _join_step(plan: Plan, name: str, budget_bytes: int, revision: Revision) -> int:
    """Record into the one recording of the step on this node; the first task makes it."""
    try:
        run = rundir.create(name)
        run.write_facts(_facts(plan, run, None, budget_bytes, os.getpid(), revision))
    except RecordingExists:
        run = rundir.find(name)
        _wait_for_facts(run)
    environment = workload_environment(
        os.environ, run.path, plan.hertz, plan.reset_peaks, plan.strict, plan.history
    )
    # All tasks offer a recorder; the recorders elect one among them.
    end_like(keep_batch(run.path, plan.command, environment, lambda: start_recorder(run, None)))


def _wait_for_facts(run: rundir.RunDirectory, seconds: float = 10.0) -> None:
    """The task that made the directory is about to write ``run.json``. Raises :class:`CannotRecord`."""
    until = time.monotonic() + seconds
    while not run.run_file.exists():
        if time.monotonic() > until:
            raise CannotRecord(f"{run.path} has no run.json: the task that made it has ended; remove it")
        time.sleep(0.01)

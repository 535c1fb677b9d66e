"""The driver's side of a recorded run: who is ours under other pids, what grew outside, and faults live."""

import json
import random
import sys
import threading
import time

import pytest
from product import Gpumem, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.simcard]

GIB, MIB = 1 << 30, 1 << 20
CONTEXT = 500 * MIB

RANK = """
import importlib.util, os, sys, time
import torch, gpumem_tui
from gpumem_tui.simcard.outside import Block
rank = int(os.environ["RANK"])
device = f"cuda:{rank}"
torch.cuda.set_device(device)
sizes = [(300, 90, 520, 150, 410, 40), (130, 610, 60, 280, 350, 220)][rank]
with gpumem_tui.phase("start"):
    block = torch.empty(64 << 20, dtype=torch.uint8, device=device)
print("up", flush=True)
asked, extra, turn = sys.argv[1], None, 0
while True:
    with gpumem_tui.phase("work"):
        held = torch.empty(sizes[turn % 6] << 20, dtype=torch.uint8, device=device)
        time.sleep(1.6)
    del held
    torch.cuda.empty_cache()
    time.sleep(0.9)
    turn += 1
    if rank == 0 and extra is None and os.path.exists(asked):
        with gpumem_tui.phase("communicate"):
            time.sleep(1.5)
            extra = Block(200 << 20)
            gpumem_tui.mark("buffers made")
            time.sleep(2.5)
"""

LAUNCH = """
import os, subprocess, sys
ranks = [
    subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]],
                     env={**os.environ, "RANK": str(i), "LOCAL_RANK": str(i), "WORLD_SIZE": "2"})
    for i in range(2)
]
for each in ranks:
    each.wait()
"""


@pytest.fixture(scope="module")
def run(simcard_libraries, tmp_path_factory):
    """Two ranks at work on two simulated cards, three strangers beside them: one run for several tests."""
    folder = tmp_path_factory.mktemp("run")
    gpumem, asked = Gpumem(folder), folder / "asked"
    process = gpumem.start(
        *("run", "--simulate", "24GiB,24GiB", "--sim-set", f"context_bytes={CONTEXT}", "--"),
        *(sys.executable, "-c", LAUNCH, RANK, str(asked)),
    )
    assert [process.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
    made = Run(gpumem, simcard_libraries, asked)
    yield made
    made.end()
    gpumem.end()


class Run:
    def __init__(self, gpumem, libraries, asked):
        self.gpumem, self.asked = gpumem, asked
        self.machine = gpumem.machine(libraries)
        self._strangers = [gpumem.hold(libraries, device, GIB, "stranger") for device in (0, 1, 1)]
        self._over = threading.Event()
        self._mover = threading.Thread(target=self._move, daemon=True)
        self._recording = None

    def _move(self):
        chance = random.Random(3)
        while not self._over.wait(0.7):
            for stranger in self._strangers:
                stranger.stdin.write(f"{chance.randrange(500, 4000) * MIB}\n")
                stranger.stdin.flush()
                stranger.stdout.readline()

    def move_strangers(self):
        self._mover.start()

    def attach(self):
        """One picture, as a script gets it."""
        return json.loads(self.gpumem("attach", "--json").stdout)

    def until(self, fits, what, seconds=30):
        """The first live picture that fits; the recording is followed as a view does."""
        if self._recording is None:
            self._recording = self.gpumem.recording()
        began = time.monotonic()

        def look():
            state = self._recording.read()
            return (state, time.monotonic() - began) if fits(state) else None

        return wait_until(look, seconds, what)

    def end(self):
        self._over.set()
        if self._mover.is_alive():
            self._mover.join()


def ours(state):
    """Rank → (pid, how it was recognised)."""
    return {p.rank: (p.pid, p.identified_by) for p in state.processes if p.rank is not None}


def test_both_ranks_are_found_under_host_pids_by_growth_and_no_stranger_is_claimed(run):
    state, _ = run.until(lambda s: len(ours(s)) == 2, "both ranks by pid")
    pids = {rank: pid for rank, (pid, _) in ours(state).items()}
    by_pid = {by for _, by in ours(state).values()}
    run.move_strangers()
    run.machine.set(nvml_process_list=2)  # from now on the driver names the host's pids
    run.until(lambda s: s.processes and all(p.pid > 10_000_000 for p in s.processes), "host pids")
    claims = []
    state, took_s = run.until(
        lambda s: claims.append(ours(s)) or len(ours(s)) == 2, "both ranks by growth", 40
    )
    picture = run.attach()
    run.machine.set(nvml_process_list=0)
    run.until(lambda s: set(ours(s).values()) == {(pid, "same pid") for pid in pids.values()}, "pids")

    assert by_pid == {"same pid"}
    assert ours(state) == {rank: (10_000_000 + pid, "growth matching") for rank, pid in pids.items()}
    assert all(pid == 10_000_000 + pids[rank] for claim in claims for rank, (pid, _) in claim.items())
    assert took_s < 20
    rows = [p for p in picture["processes"] if p["rank"] is not None]
    assert {p["identified_by"] for p in rows} == {"growth matching"}
    used = [t for d in picture["devices"] for t in d["ledger"]["terms"] if t["term"] == "outside"]
    assert all(term["bytes"] is not None for term in used)
    assert any("growth matching" in event.text for event in state.events)


WAITING = """
import os, sys, time, torch
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
block = torch.empty(700 << 20, dtype=torch.uint8, device=f"cuda:{os.environ['RANK']}")
time.sleep(60)
"""


def test_under_host_pids_a_pid_that_is_new_as_cuda_is_initialised_is_the_rank(
    gpumem, simcard_libraries, tmp_path
):
    go = tmp_path / "go"
    process = gpumem.start(
        *("run", "--simulate", "24GiB,24GiB", "--sim-set", "nvml_process_list=2", "--"),
        *(sys.executable, "-c", LAUNCH, WAITING, str(go)),
    )
    assert [process.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
    for device in (0, 1, 1):
        gpumem.hold(simcard_libraries, device, GIB, "stranger")
    recording = gpumem.recording()
    wait_until(lambda: len(recording.read().processes) == 3, 20, "the strangers")
    time.sleep(4)  # strangers that come at the same time would be candidates too
    go.touch()
    state = wait_until(lambda: (s := recording.read()) and len(ours(s)) == 2 and s, 30, "both ranks")
    pids = {rank.rank: rank.pid for rank in state.ranks}

    assert ours(state) == {
        rank: (10_000_000 + pid, "new pid at CUDA initialisation") for rank, pid in pids.items()
    }


BY_HAND = """
import os, sys, time, torch
block = torch.empty(700 << 20, dtype=torch.uint8, device="cuda")
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
import gpumem_tui.hook
time.sleep(60)
"""


def test_a_stranger_that_comes_as_an_agent_is_started_by_hand_is_not_taken_for_the_rank(
    gpumem, simcard_libraries, tmp_path
):
    go = tmp_path / "go"
    process = gpumem.start(
        *("run", "--simulate", "24GiB", "--sim-set", "nvml_process_list=2"),
        *("--sim-set", "nvml_process_memory=0", "--", sys.executable, "-I", "-c", BY_HAND, str(go)),
        env={"RANK": "0", "WORLD_SIZE": "1"},
    )
    assert process.stdout.readline() == b"up\n"
    recording = gpumem.recording()
    wait_until(lambda: len(recording.read().processes) == 1, 20, "the rank, of which nothing is known yet")
    time.sleep(4)  # it has been there for longer than any initialisation takes
    go.touch()
    gpumem.hold(simcard_libraries, 0, GIB, "stranger")
    state = wait_until(lambda: (s := recording.read()).ranks and len(s.processes) == 2 and s, 20, "both")
    seen_until_s, claims = time.monotonic() + 8, []
    while time.monotonic() < seen_until_s:
        claims.append(ours(recording.read()))
        time.sleep(0.2)

    assert len(state.ranks) == 1
    assert {pid for claim in claims for pid, _ in claim.values()} <= {10_000_000 + state.ranks[0].pid}


ON_AN_INSTANCE = """
import time, torch
block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
print("up", flush=True)
time.sleep(60)
"""


def test_a_rank_on_a_mig_instance_is_joined_with_the_instance(gpumem, simcard_libraries):
    process = gpumem.start(
        *("run", "--name", "on-mig", "--simulate", "24GiB", "--sim-set", "mig=2", "--"),
        *(sys.executable, "-c", ON_AN_INSTANCE),
        env={"RANK": "0", "WORLD_SIZE": "1"},
    )
    assert process.stdout.readline() == b"up\n"
    recording = gpumem.recording()

    def allocated(state):
        return {d.index: [share.allocated.bytes for share in d.ledger.ranks] for d in state.devices}

    state = wait_until(
        lambda: (s := recording.read()) and s.processes and allocated(s).get(100) == [GIB] and s, 30, "it"
    )
    top = json.loads(gpumem("top", "--run", "on-mig", "--json").stdout)

    assert allocated(state) == {0: [GIB], 100: [GIB], 101: []}
    assert [(p.device, p.rank) for p in state.processes] == [(100, 0)]
    assert [(d.index, d.parent, d.ledger.total.bytes) for d in state.devices] == [
        (0, None, 24 * GIB), (100, 0, 12 * GIB), (101, 0, 12 * GIB),
    ]  # fmt: skip
    assert all(d.ledger.unattributed.bytes == 0 for d in state.devices)
    assert [(p["device"], p["run"]["rank"], p["run"]["reserved_bytes"]) for p in top["processes"]] == [
        (100, 0, GIB)
    ]


def test_memory_outside_grows_in_a_phase_and_keeps_its_baseline(run):
    def of_rank_0(state):
        return next((o for o in state.outside if o.rank == 0), None)

    run.until(lambda s: of_rank_0(s) is not None, "a baseline")
    run.asked.touch()
    state, _ = run.until(lambda s: of_rank_0(s).steps, "a step")
    grown = of_rank_0(state)
    picture = run.attach()

    assert abs(grown.baseline_bytes - CONTEXT) <= 2 * MIB
    assert [step.bytes for step in grown.steps] == [200 * MIB]
    assert "communicate" in grown.steps[0].phases
    assert grown.steps[0].marks == ("buffers made",)
    assert any("outside PyTorch +200 MiB during" in event["text"] for event in picture["events"])
    assert next(o for o in picture["outside"] if o["rank"] == 0)["steps"][0]["bytes"] == 200 * MIB


def test_each_fault_in_turn_has_its_reason_in_the_run_and_ends(run):
    def total(device, picture):
        return picture["devices"][device]["ledger"]["total"]

    def seen(fits, what):
        return wait_until(lambda: (p := run.attach()) and fits(p) and p, 30, what)

    seen(lambda p: len(p["devices"]) == 2 and total(0, p)["bytes"], "a healthy picture")
    said = {}
    for error, reason in (
        ("NO_PERMISSION", "no permission"),
        ("NOT_SUPPORTED", "not supported"),
        ("UNKNOWN", "failed"),
    ):
        run.machine.set(nvml_memory_error=error)
        said[error] = seen(lambda p, reason=reason: total(0, p)["reason"] == reason, reason)
    run.machine.set(nvml_memory_error=0, nvml_error="GPU_IS_LOST", nvml_error_device=0)
    lost = seen(lambda p: total(0, p)["reason"] == "lost" and total(1, p)["bytes"], "a lost card")
    run.machine.set(nvml_error=0, nvml_error_device=-1, nvml_process_memory=0)
    merged = seen(lambda p: p["processes"] and p["processes"][0]["reason"] == "not supported", "no figures")
    run.machine.set(nvml_process_memory=1, nvml_process_list=1)
    empty = seen(lambda p: not p["processes"], "an empty list")
    run.machine.set(nvml_process_list=0)
    well = seen(
        lambda p: (
            total(0, p)["bytes"] and all(r["reason"] is None for r in p["processes"]) and p["processes"]
        ),
        "everything again",
    )

    for picture in said.values():
        assert all(device["ledger"]["device_used"]["bytes"] is None for device in picture["devices"])
        terms = [t for d in picture["devices"] for t in d["ledger"]["terms"]]
        assert all(t["bytes"] for t in terms if t["term"] == "allocated")
        assert all(t["bytes"] is None for t in terms if t["term"] in ("free", "unattributed"))
    assert total(0, lost)["detail"] == "GPU is lost"
    free = [t["bytes"] for t in lost["devices"][1]["ledger"]["terms"] if t["term"] == "free"]
    assert free[0] > 0
    for picture in (merged, empty):
        terms = [t for d in picture["devices"] for t in d["ledger"]["terms"]]
        assert all(t["bytes"] is None for t in terms if t["term"] == "outside")
        assert "outside PyTorch of our ranks" in next(t["of"] for t in terms if t["term"] == "merged")
        sums = [sum(t["bytes"] or 0 for t in d["ledger"]["terms"]) for d in picture["devices"]]
        assert sums == [24 * GIB, 24 * GIB]
    assert [total(i, well)["bytes"] for i in range(2)] == [24 * GIB, 24 * GIB]

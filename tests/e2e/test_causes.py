"""One script for each cause of a failure, through the real ``run`` on simulated cards: what it is said to be.

Every script runs once, two at a time; the tests read their recordings. Combinations of
causes and near misses are in ``test_causes_together.py``, and more of them as typed
situations in ``tests/unit/test_diagnosis.py``.
"""

import re
import shutil
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from product import Gpumem, wait_until

from gpumem_tui.agent import wire
from gpumem_tui.analysis.failurestate import Outcome, Part
from gpumem_tui.analysis.findings import Strength, Verdict
from gpumem_tui.journal import rundir
from gpumem_tui.session import Recording
from gpumem_tui.simcard import SimulatedMachine
from gpumem_tui.units import GIB, MIB

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

HEAD = """
import os, sys, time, torch, torch.nn as nn, gpumem_tui
GIB, MIB = 1 << 30, 1 << 20
def take(size, device="cuda"): return torch.empty(size, dtype=torch.uint8, device=device)
def step(model, optimizer, batch=64, width=1024):
    model(torch.randn(batch, width, device="cuda")).sum().backward(); optimizer.step(); optimizer.zero_grad()
def wait(path):
    until = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < until: time.sleep(0.02)
"""

RANKS = """
import subprocess
def launch(world, kill=False):
    if "RANK" in os.environ: return int(os.environ["RANK"])
    def child(rank):
        names = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
        env = dict(os.environ, **{name: str(value) for name, value in names.items()})
        return subprocess.Popen([sys.executable, *sys.argv], env=env)
    children = [child(rank) for rank in range(world)]
    code = children[0].wait()
    if kill:
        for each in children[1:]: each.terminate()
    else: open("done", "w").close()
    for each in children: each.wait()
    sys.exit(code)
"""


class Case(NamedTuple):
    """A script, what it runs on, and what is to be said of it."""

    script: str
    verdict: Verdict
    phase: str | None
    requested_bytes: int
    cards: str = "8GiB"
    exits: int = 1
    outcome: Outcome = Outcome.ENDED
    says: tuple[str, ...] = ()
    """What the headline of the first finding says."""


CASES = {
    "another process came ten seconds before": Case(
        """
        model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3): step(model, optimizer)
        held = take(2 * GIB)
        open("ready", "w").close(); wait("go")
        with gpumem_tui.phase("rollout"): take(3 * GIB)
        """,
        Verdict.OTHER_PROCESS,
        "rollout",
        3 * GIB,
        says=("stranger", "came and took"),
    ),
    "one request is larger than the card": Case(
        """
        model = nn.Linear(1024, 1024, bias=False).cuda()
        model(torch.randn(64, 1024, device="cuda"))
        model(take(9 * GIB))
        """,
        Verdict.CAPACITY,
        None,
        9 * GIB,
        says=("more than the whole card",),
    ),
    "idle memory lies in pieces": Case(
        """
        model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        blocks = [take(512 * MIB) for _ in range(13)]
        blocks.clear()
        halves = [take(260 * MIB) for _ in range(13)]
        with gpumem_tui.phase("gather"): take(2 * GIB)
        """,
        Verdict.FRAGMENTATION,
        "gather",
        2 * GIB,
        says=("largest hole 252 MiB",),
    ),
    "idle memory is another stream's": Case(
        """
        model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)
        whole = take(4 * GIB); del whole
        small = take(64 * MIB)
        with torch.cuda.stream(torch.cuda.Stream()): take(3900 * MIB)
        """,
        Verdict.FRAGMENTATION,
        None,
        3900 * MIB,
        says=("3.96 GiB lay idle in the pools of other streams", "on one whose pools have no hole"),
    ),
    "a library takes memory outside PyTorch in a phase": Case(
        """
        from gpumem_tui.simcard.outside import Block
        model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3): step(model, optimizer)
        time.sleep(1.5)
        with gpumem_tui.phase("rollout"):
            blocks = []
            for _ in range(3): blocks.append(Block(700 * MIB)); time.sleep(1.2)
        model(torch.randn(700_000, 1024, device="cuda"))
        """,
        Verdict.OUTSIDE_PYTORCH,
        None,
        2736 * MIB,
        cards="4GiB",
        says=("2.05 GiB", "in phase rollout"),
    ),
    "a memory fraction caps the process": Case(
        """
        torch.cuda.set_per_process_memory_fraction(0.25)
        model = nn.Linear(1024, 1024).cuda(); held = take(1 * GIB)
        with torch.no_grad(): model.eval()(torch.randn(300_000, 1024, device="cuda"))
        """,
        Verdict.CAP,
        None,
        1172 * MIB,
        says=("may reserve", "free"),
    ),
    "the weights do not fit": Case(
        "nn.Sequential(*[nn.Linear(16384, 16384, bias=False) for _ in range(3)]).cuda()",
        Verdict.LOAD,
        "load",
        GIB,
        cards="3GiB",
        says=("2.00 GiB loaded so far",),
    ),
    "an evaluation keeps its outputs": Case(
        """
        model = nn.Linear(1024, 8192).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4): step(model, optimizer)
        model.eval(); logits = []
        with torch.no_grad():
            while True: logits.append(model(torch.randn(8192, 1024, device="cuda")))
        """,
        Verdict.EVALUATION,
        "eval",
        256 * MIB,
        says=("256 MiB a batch",),
    ),
    "the first optimizer step makes its state": Case(
        """
        model = nn.Sequential(*[nn.Linear(8192, 8192, bias=False) for _ in range(5)]).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(64, 8192, device="cuda")).sum().backward()
        open("ready", "w").close(); wait("go")
        optimizer.step()
        """,
        Verdict.OPTIMIZER_STATE,
        "optimizer",
        256 * MIB,
        cards="4GiB",
        says=("of 2.50 GiB that it makes in all",),
    ),
    "a list keeps losses with their graphs": Case(
        """
        model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        while True:
            h = model(torch.randn(32768, 1024, device="cuda")); loss = (h * h).sum()
            loss.backward(retain_graph=True); optimizer.step(); optimizer.zero_grad(); losses.append(loss)
            time.sleep(0.2)
        """,
        Verdict.GROWTH,
        "*",
        128 * MIB,
        says=("256 MiB a step",),
    ),
    "all ranks are on the first card": Case(
        """
        #RANKS
        rank = launch(3)
        model = nn.Linear(1024, 1024).cuda(); held = take(2 * GIB)
        model(torch.randn(64, 1024, device="cuda"))
        open(f"there{rank}", "w").close()
        if rank: wait("done"); sys.exit(0)
        for other in (1, 2): wait(f"there{other}")
        time.sleep(1.2)
        model(torch.randn(300_000, 1024, device="cuda"))
        """,
        Verdict.RANKS_ON_ONE_CARD,
        None,
        1172 * MIB,
        cards="8GiB,8GiB,8GiB",
        says=("3 ranks of this run share this card",),
    ),
    "contexts of other ranks stray onto the first card": Case(
        """
        #RANKS
        rank = launch(4)
        torch.cuda.set_device(1 if rank else 0)
        model = nn.Linear(1024, 1024).cuda(); held = take(1 * GIB if rank else 1900 * MIB)
        if rank: torch.cuda.mem_get_info(0)
        open(f"there{rank}", "w").close()
        if rank: wait("done"); sys.exit(0)
        for other in (1, 2, 3): wait(f"there{other}")
        time.sleep(1.2)
        model(torch.randn(300_000, 1024, device="cuda"))
        """,
        Verdict.STRAY_CONTEXTS,
        None,
        1172 * MIB,
        cards="4GiB,8GiB",
        says=("3 ranks of other cards",),
    ),
    "an exception that is kept keeps what its attempt had made": Case(
        """
        model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]).cuda()
        def attempt(rows): model(torch.empty(rows, 4096, device="cuda"))
        kept = None
        with gpumem_tui.phase("first try"):
            try: attempt(131072)
            except torch.OutOfMemoryError as error: kept = error
        time.sleep(0.5)
        attempt(65536)
        """,
        Verdict.KEPT,
        "forward",
        GIB,
        says=("6.01 GiB that an attempt before had made are still live",),
        cards="8GiB",
    ),
    "a batch size is halved until it fits": Case(
        """
        model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batch = 1 << 22
        while True:
            try: step(model, optimizer, batch)
            except torch.OutOfMemoryError: batch //= 2
            else: break
        """,
        Verdict.CAPACITY,
        None,
        16 * GIB,
        exits=0,
        outcome=Outcome.CAUGHT,
    ),
    "one rank fails and the other is ended for it": Case(
        """
        #RANKS
        rank = launch(2, kill=True)
        torch.cuda.set_device(rank)
        model = nn.Linear(1024, 1024).cuda()
        model(torch.randn(64, 1024, device="cuda"))
        open(f"there{rank}", "w").close()
        if rank:
            with gpumem_tui.phase("waiting"): wait("never")
        wait("there1")
        held = take(7 * GIB); model(torch.randn(300_000, 1024, device="cuda"))
        """,
        Verdict.CAPACITY,
        None,
        1172 * MIB,
        cards="8GiB,8GiB",
    ),
    "memory runs out on the autograd thread": Case(
        """
        model = nn.Embedding(262144, 1024).cuda()
        model(torch.zeros(8, dtype=torch.long, device="cuda")).sum().backward()
        """,
        Verdict.CAPACITY,
        "backward",
        GIB,
        cards="2GiB",
    ),
}

SWALLOWED = """
model = nn.Linear(1024, 1024).cuda()
model(torch.randn(64, 1024, device="cuda"))
try: take(9 * GIB)
except torch.OutOfMemoryError: pass
raise ValueError("no labels")
"""
WORKER = """
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 1
    def __getitem__(self, index): return take(9 * GIB)
if __name__ == "__main__":
    model = nn.Linear(1024, 1024).cuda()
    for _ in DataLoader(Data(), num_workers=1, multiprocessing_context="spawn"): pass
"""
LEFT = """
model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step(model, optimizer)
try: take(9 * GIB)
except torch.OutOfMemoryError: sys.exit(3)
"""
LOST = """
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index):
        if index == 4: time.sleep(2.5); os.kill(os.getpid(), 9)
        return torch.zeros(1024)
if __name__ == "__main__":
    model = nn.Linear(1024, 1024).cuda()
    for batch in DataLoader(Data(), batch_size=2, num_workers=1): model(batch.cuda())
"""
BARE = "one request is larger than the card"
KILLED = """
model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2): step(model, optimizer)
with gpumem_tui.phase("mining"):
    time.sleep(1.2)
    os.kill(os.getpid(), 9)
"""


class Runs:
    """All scripts, run once."""

    def __init__(self, folder, libraries):
        self.folder, self.libraries = folder, libraries
        self.done = {}
        self.states = {}
        self._products = []

    def product(self, name):
        folder = self.folder / "".join(c if c.isalnum() else "-" for c in name)
        folder.mkdir()
        made = Gpumem(folder)
        made.libraries = self.libraries
        self._products.append(made)
        return made

    def run(self, name, script, cards="8GiB", exits=1, env=None, meanwhile=None):
        product = self.product(name)
        (product.folder / "train.py").write_text(HEAD + textwrap.dedent(script).replace("#RANKS\n", RANKS))
        words = ("run", "--simulate", cards, "--batch", "--", "train.py")
        if meanwhile is None:
            done = product(*words, exits=exits, env=env)
        else:
            thread = threading.Thread(target=meanwhile, args=(product,))
            thread.start()
            done = product(*words, exits=exits, env=env)
            thread.join()
        self.done[name] = (product, done)
        self.states[name] = product.recording().read()

    def end(self):
        for product in self._products:
            product.end()


def a_neighbour_comes(product):
    """Four GiB are taken by somebody, seen by the driver, and ten seconds later the script goes on."""
    wait_until(lambda: (product.folder / "ready").exists(), 60)
    run = rundir.find("latest", {"GPUMEM_TUI_HOME": str(product.home)})
    holder = SimulatedMachine(product.libraries, run.path / "simcard.state").hold(0, 4 * GIB, "stranger")
    product._processes.append(holder)
    recording = Recording(run)
    wait_until(lambda: any(d.ledger.others for d in recording.read().devices), 30)
    time.sleep(9)
    (product.folder / "go").touch()


def watch(product):
    """Look at the run as a view does, until it has failed; the script may go on once there was an alert."""
    recording = (
        wait_until(lambda: list(product.home.glob("runs/*/journal/rank-*")), 60) and product.recording()
    )
    product.alerts = {}
    while (state := recording.read()).facts.live and not state.failures:
        product.alerts.update({alert.finding.verdict: alert for alert in state.alerts})
        if product.alerts:
            (product.folder / "go").touch()
        time.sleep(0.3)


MEANWHILE = {
    "another process came ten seconds before": a_neighbour_comes,
    "the first optimizer step makes its state": watch,
    "a list keeps losses with their graphs": watch,
}
"""What goes on beside a script."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory, simcard_libraries):
    made = Runs(tmp_path_factory.mktemp("causes"), simcard_libraries)
    try:
        with ThreadPoolExecutor(2) as pool:
            waiting = []
            for name, case in CASES.items():
                beside = MEANWHILE.get(name)
                waiting.append(pool.submit(made.run, name, case.script, case.cards, case.exits, None, beside))
            expandable = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
            pieces = CASES["idle memory lies in pieces"].script
            waiting.append(pool.submit(made.run, "expandable", pieces, "8GiB", 0, expandable))
            streams = CASES["idle memory is another stream's"].script
            waiting.append(pool.submit(made.run, "expandable streams", streams, "8GiB", 0, expandable))
            waiting.append(pool.submit(made.run, "killed", KILLED, "8GiB", -9))
            for name, script in (("swallowed", SWALLOWED), ("worker", WORKER), ("lost", LOST)):
                waiting.append(pool.submit(made.run, name, script))
            waiting.append(pool.submit(made.run, "left", LEFT, "8GiB", 3))
            for each in waiting:
                each.result()
        yield made
    finally:
        made.end()


def first_of(state):
    """The failure that the run is about."""
    return min(state.failures, key=lambda f: (f.outcome is Outcome.CAUGHT, f.kind != "out of memory", f.t_ns))


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named_with_its_phase_and_bytes(runs, name):
    case, state = CASES[name], runs.states[name]
    failure = first_of(state)
    leading = failure.findings[0]

    assert (leading.verdict, leading.strength) == (case.verdict, Strength.SUPPORTED), failure.findings
    for words in case.says:
        assert words in leading.headline
    assert failure.requested_bytes == case.requested_bytes
    if case.phase != "*":
        assert (failure.phase or "").split(" > ")[-1] == (case.phase or "")
    assert failure.outcome is case.outcome
    assert sum(f.strength is Strength.SUPPORTED for f in failure.findings) == 1


@pytest.mark.parametrize("name", CASES)
def test_the_ledger_of_that_instant_closes(runs, name):
    failure = first_of(runs.states[name])
    book = failure.ledger

    assert sum(size for _, size in book.parts()) == book.total.bytes
    assert book.unattributed.bytes == 0


@pytest.mark.parametrize("name", ["expandable", "expandable streams"])
def test_the_same_script_passes_where_segments_expand(runs, name):
    assert runs.states[name].failures == ()


def test_the_neighbour_is_named_with_the_time_at_which_it_came(runs):
    failure = first_of(runs.states["another process came ten seconds before"])
    (evidence,) = [e for e in failure.findings[0].evidence if "grew by" in e.says]

    assert evidence.low_bytes > 4 * GIB
    (seconds,) = re.findall(r"from ([0-9.]+) s before", failure.findings[0].headline)
    assert 8.5 <= float(seconds) <= 14


def test_the_state_of_an_optimizer_is_forecast_before_its_first_step(runs):
    product, _ = runs.done["the first optimizer step makes its state"]
    alert = product.alerts[Verdict.OPTIMIZER_STATE]

    assert "Adam's first step makes 2.50 GiB of state" in alert.text
    assert not runs.states["the first optimizer step makes its state"].alerts


def test_growth_is_said_while_the_run_goes_on_with_the_steps_that_are_left(runs):
    product, _ = runs.done["a list keeps losses with their graphs"]
    alert = product.alerts[Verdict.GROWTH]

    assert "grows by 256 MiB a step" in alert.text
    assert "steps left" in alert.text


def test_the_other_rank_is_a_victim_with_its_phase(runs):
    first, victim = runs.states["one rank fails and the other is ended for it"].failures

    assert (first.rank, first.part) == (0, Part.FIRST)
    assert (victim.rank, victim.part, victim.phase) == (1, Part.VICTIM, "waiting")
    assert [(other.rank, other.phase, other.ordinal) for other in first.others] == [(1, "waiting", 1)]
    assert victim.findings[0].verdict is Verdict.ANOTHER_RANK


def test_every_halving_is_an_event_of_its_own_and_none_ended_the_run(runs):
    failures = runs.states["a batch size is halved until it fits"].failures

    assert [f.requested_bytes for f in failures[:2]] == [16 * GIB, 8 * GIB]
    assert {f.outcome for f in failures} == {Outcome.CAUGHT}


def test_an_error_after_a_failure_was_caught_is_the_end_and_memory_is_neither_blamed_nor_ruled_out(runs):
    error, caught = runs.states["swallowed"].failures

    assert (caught.kind, caught.outcome) == ("out of memory", Outcome.CAUGHT)
    assert (error.kind, error.part, error.outcome) == ("exception", Part.FIRST, Outcome.ENDED)
    assert error.findings[0].verdict is Verdict.UNKNOWN
    assert "ValueError: no labels" in error.findings[0].headline


def test_a_data_loader_is_the_victim_of_its_worker(runs):
    first, victim = runs.states["worker"].failures

    assert (first.part, first.kind, first.requested_bytes) == (Part.FIRST, "out of memory", 9 * GIB)
    assert (victim.part, victim.findings[0].verdict) == (Part.VICTIM, Verdict.ANOTHER_RANK)
    assert f"process {first.pid}" in victim.findings[0].headline


def test_a_program_that_ends_itself_where_it_catches_the_failure_is_said_to_have_caught_it(runs):
    (failure,) = runs.states["left"].failures

    assert (failure.part, failure.outcome) == (Part.FIRST, Outcome.LEFT)
    assert failure.findings[0].verdict is Verdict.CAPACITY


def test_a_worker_that_is_killed_without_a_journal_is_the_first_cause_where_the_kernel_tells(runs):
    state = runs.states["lost"]
    error = next(failure for failure in state.failures if failure.kind == "exception")

    if any("killed by SIGKILL" in event.text for event in state.events):
        first = state.failures[0]
        assert (first.kind, first.headline.partition(" ended: ")[2]) == ("host kill", "killed by SIGKILL")
        assert (error.part, error.findings[0].verdict) == (Part.VICTIM, Verdict.ANOTHER_RANK)
    else:
        assert error.findings[0].verdict is Verdict.UNKNOWN


def test_a_kill_is_told_with_the_phase_it_was_in_and_the_last_word(runs):
    (failure,) = runs.states["killed"].failures

    assert (failure.kind, failure.phase, failure.step) == ("host kill", "mining", 2)
    assert failure.headline.startswith(f"process {failure.pid} was killed in mining, step 2, ")
    assert "after it last spoke" in failure.headline
    assert failure.findings[0].verdict is Verdict.UNKNOWN


def test_a_kill_that_the_cgroup_counted_is_host_memory(runs, tmp_path):
    product, _ = runs.done["killed"]
    copy = tmp_path / "copied"
    shutil.copytree(product.latest().path, copy)
    (killed,) = runs.states["killed"].failures
    with next(copy.glob("journal/driver.*")).open("ab") as file:
        gone = [(rank.pid, rank.started_ticks) for rank in runs.states["killed"].ranks]
        file.write(wire.encode("kill", killed.t_ns, 1, "cgroup", gone))
    (failure,) = Recording(rundir.find(str(copy))).read().failures

    assert failure.findings[0].verdict is Verdict.HOST_MEMORY


def test_the_programs_own_end_is_what_it_is_without_us(runs, simcard_libraries, make_simcard):
    product, monitored = runs.done[BARE]
    card = make_simcard("8GiB", libraries=simcard_libraries)
    bare = card.run([sys.executable, product.folder / "train.py"], exits=1)

    def told(text):
        return [line.partition("]")[2] if line.startswith("[W") else line for line in text.splitlines()]

    assert told(monitored.stderr.decode()) == told(bare.stderr)

"""Two causes at once, and what only looks like a cause, through the real ``run``: nothing wrong is sure.

The same as typed situations, with more of them, is in ``tests/unit/test_diagnosis.py``.
"""

import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from e2e.test_causes import Runs, first_of
from product import wait_until

from gpumem_tui.analysis.findings import Strength, Verdict
from gpumem_tui.journal import rundir
from gpumem_tui.session import Recording
from gpumem_tui.simcard import SimulatedMachine
from gpumem_tui.units import GIB, MIB

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

TRAINING = """
model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def ask(): open("ready", "w").close(); wait("go"); time.sleep(2.5)
"""


class Case(NamedTuple):
    """A script, and what somebody else takes of the card where it asks for that."""

    script: str
    verdicts: frozenset[Verdict] = frozenset()
    stranger_bytes: int = 0
    leaves: bool = False


TWO = {
    "every step keeps memory, and a neighbour came": Case(
        """
        kept = []
        for number in range(40):
            step(model, optimizer); kept.append(take(64 * MIB)); time.sleep(0.1)
            if number == 20: ask()
        take(2560 * MIB)
        """,
        frozenset({Verdict.GROWTH, Verdict.OTHER_PROCESS}),
        stranger_bytes=3276 * MIB,
    ),
    "idle memory lies in pieces, and a neighbour came": Case(
        """
        step(model, optimizer)
        blocks = [take(512 * MIB) for _ in range(8)]
        blocks.clear()
        halves = [take(260 * MIB) for _ in range(8)]
        ask()
        take(1800 * MIB)
        """,
        frozenset({Verdict.FRAGMENTATION, Verdict.OTHER_PROCESS}),
        stranger_bytes=2 * GIB,
    ),
    "every step keeps memory, and idle memory lies in pieces": Case(
        """
        step(model, optimizer)
        blocks = [take(512 * MIB) for _ in range(8)]
        blocks.clear()
        halves = [take(260 * MIB) for _ in range(8)]
        kept = []
        for _ in range(10): step(model, optimizer); kept.append(take(300 * MIB)); time.sleep(0.1)
        take(1800 * MIB)
        """,
        frozenset({Verdict.FRAGMENTATION, Verdict.GROWTH}),
    ),
    "a library grew in a phase, and a neighbour came": Case(
        """
        from gpumem_tui.simcard.outside import Block
        for _ in range(3): step(model, optimizer)
        time.sleep(1.5)
        with gpumem_tui.phase("rollout"):
            held = []
            for _ in range(3): held.append(Block(700 * MIB)); time.sleep(1.2)
        ask()
        take(3500 * MIB)
        """,
        frozenset({Verdict.OUTSIDE_PYTORCH, Verdict.OTHER_PROCESS}),
        stranger_bytes=2 * GIB,
    ),
    "an evaluation keeps its outputs, and a neighbour came": Case(
        """
        for _ in range(5): step(model, optimizer)
        model.eval(); kept = []
        with torch.no_grad():
            for number in range(40):
                kept.append(model(torch.randn(16384, 1024, device="cuda"))); time.sleep(0.1)
                if number == 20: ask()
            model(torch.randn(600_000, 1024, device="cuda"))
        """,
        frozenset({Verdict.EVALUATION, Verdict.OTHER_PROCESS}),
        stranger_bytes=3 * GIB,
    ),
}

CAPPED = Case(
    """
    torch.cuda.set_per_process_memory_fraction(0.5)
    kept = []
    while True: step(model, optimizer); kept.append(take(96 * MIB)); time.sleep(0.1)
    """
)
"""Two causes of which one is the limit that was met, and the other how it was."""


class Neighbour:
    """A neighbour that comes when the script asks, and goes when it says so."""

    def __init__(self, case):
        self.case = case

    def __call__(self, product):
        wait_until(lambda: (product.folder / "ready").exists(), 90)
        run = rundir.find("latest", {"GPUMEM_TUI_HOME": str(product.home)})
        machine = SimulatedMachine(product.libraries, run.path / "simcard.state")
        holder = machine.hold(0, self.case.stranger_bytes, "stranger")
        product._processes.append(holder)
        wait_until(lambda: any(d.ledger.others for d in Recording(run).read().devices), 30)
        time.sleep(1.5)
        if self.case.leaves:
            holder.kill()
            holder.wait()
            wait_until(lambda: not any(d.ledger.others for d in Recording(run).read().devices), 30)
        (product.folder / "go").touch()


NEAR = {
    "a neighbour came and left": Case(
        "ask(); take(6 * GIB); held = take(6 * GIB); take(2 * GIB)",
        stranger_bytes=4 * GIB,
        leaves=True,
    ),
    "a neighbour took next to nothing": Case(
        "held = take(5 * GIB); ask(); take(4 * GIB)", stranger_bytes=128 * MIB
    ),
    "every step kept memory, for three steps": Case(
        """
        kept = []
        for _ in range(3): step(model, optimizer); kept.append(take(300 * MIB)); time.sleep(0.2)
        held = take(4 * GIB); take(4 * GIB)
        """
    ),
    "steps kept memory and gave it back": Case(
        """
        for _ in range(6):
            kept = []
            for _ in range(5): step(model, optimizer); kept.append(take(300 * MIB)); time.sleep(0.05)
        held = take(4 * GIB); take(4 * GIB)
        """
    ),
    "memory outside PyTorch grew by next to nothing": Case(
        """
        from gpumem_tui.simcard.outside import Block
        for _ in range(3): step(model, optimizer)
        time.sleep(1.5)
        with gpumem_tui.phase("rollout"): held = Block(64 * MIB); time.sleep(1.2)
        held = take(4 * GIB), take(4 * GIB)
        """
    ),
    "much was idle, in one piece that is a little too small": Case(
        "held = take(5 * GIB); idle = take(1 * GIB); del idle; take(3000 * MIB)"
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, simcard_libraries):
    made = Runs(tmp_path_factory.mktemp("together"), simcard_libraries)
    try:
        with ThreadPoolExecutor(2) as pool:
            waiting = []
            for name, case in {**TWO, "capped": CAPPED, **NEAR}.items():
                beside = Neighbour(case) if case.stranger_bytes else None
                script = TRAINING + textwrap.dedent(case.script)
                waiting.append(pool.submit(made.run, name, script, meanwhile=beside))
            for each in waiting:
                each.result()
        yield made
    finally:
        made.end()


@pytest.mark.parametrize("name", TWO)
def test_of_two_causes_each_enough_by_itself_none_is_said_to_be_it_and_both_are_named(runs, name):
    unknown, *possible = first_of(runs.states[name]).findings

    assert unknown.verdict is Verdict.UNKNOWN
    assert "more than one thing changed" in unknown.headline
    assert {finding.verdict for finding in possible} == TWO[name].verdicts
    assert {finding.strength for finding in possible} == {Strength.POSSIBLE}


def test_a_cap_that_growth_has_met_is_the_cause_and_growth_is_named_beside_it(runs):
    cap, *possible = first_of(runs.states["capped"]).findings

    assert (cap.verdict, cap.strength) == (Verdict.CAP, Strength.SUPPORTED)
    assert [(finding.verdict, finding.strength) for finding in possible] == [
        (Verdict.GROWTH, Strength.POSSIBLE)
    ]


@pytest.mark.parametrize("name", NEAR)
def test_what_only_looks_like_a_cause_is_not_taken_for_one(runs, name):
    (finding,) = first_of(runs.states[name]).findings

    assert (finding.verdict, finding.strength) == (Verdict.CAPACITY, Strength.SUPPORTED)
    assert "live tensors and the request need" in finding.headline

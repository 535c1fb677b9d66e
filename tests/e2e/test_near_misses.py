"""What nearly is a cause, through the real ``run``: the verdict is "unknown", with what would decide.

On the full cards of these scripts several shares lie together (live tensors, memory
outside PyTorch, a stranger, a process that the driver hides), of which none would have
made room for the request. The same as typed situations is in ``tests/unit/test_diagnosis.py``.
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
from gpumem_tui.units import MIB

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

SHARES = """
from gpumem_tui.simcard.outside import Block
model = nn.Linear(1024, 1024).cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step(model, optimizer)
library = Block(600 * MIB)
def ask(): open("ready", "w").close(); wait("go"); time.sleep(2.5)
def too_much(): return torch.cuda.mem_get_info()[0] + 1500 * MIB
"""
SHARE_BYTES = 900 * MIB
"""What the stranger takes, and the hidden process."""


class Case(NamedTuple):
    """A script, what is beside it, and the word that its evidence or its missing figures must have."""

    script: str
    says: str
    exits: int = 1
    alone: bool = False
    """Nobody else is on the card."""
    settings: tuple[tuple[str, float | str], ...] = ()
    """How the card misbehaves from the moment when the script asks."""


CASES = {
    "a neighbour came and took too little": Case(
        "held = take(2500 * MIB); ask(); take(too_much())", "which share grew last"
    ),
    "every step kept memory, for three steps": Case(
        """
        held = take(1700 * MIB); kept = []; ask()
        for _ in range(3): step(model, optimizer); kept.append(take(256 * MIB)); time.sleep(0.2)
        take(too_much())
        """,
        "none of them alone explains",
    ),
    "steps kept memory now and then": Case(
        """
        held = take(1700 * MIB); kept = []; ask()
        for number in range(24):
            step(model, optimizer); time.sleep(0.05)
            if number in (3, 4, 17): kept.append(take(256 * MIB))
        take(too_much())
        """,
        "none of them alone explains",
    ),
    "memory outside PyTorch grew by a hundredth of the card": Case(
        """
        held = take(2500 * MIB); ask()
        with gpumem_tui.phase("rollout"): more = Block(80 * MIB); time.sleep(1.2)
        take(too_much())
        """,
        "outside PyTorch",
    ),
    "the driver does not say who holds the card": Case(
        "held = take(2500 * MIB); ask(); take(too_much())",
        "what this process holds",
        settings=(("nvml_process_error", "NO_PERMISSION"),),
    ),
    "the first optimizer step ran out in a temporary": Case(
        """
        big = nn.Embedding(512, 1024 * 1024).cuda()
        late = torch.optim.SGD(big.parameters(), lr=0.1, weight_decay=0.1, foreach=True)
        big.weight.grad = torch.zeros_like(big.weight)
        ask()
        filled = take(max(MIB, torch.cuda.mem_get_info()[0] - 700 * MIB))
        late.step()
        """,
        "none of them alone explains",
    ),
    "an evaluation failed that was no larger than training": Case(
        """
        class Scores(nn.Module):
            size = 4300 * MIB
            def forward(self, x): return take(self.size)
        held = take(1800 * MIB); scores = Scores()
        for _ in range(6): scores(model(torch.randn(64, 1024, device="cuda"))); step(model, optimizer)
        torch.cuda.empty_cache(); ask()
        scores.eval(); scores.size = too_much()
        with torch.no_grad(): scores(torch.randn(64, 1024, device="cuda"))
        """,
        "none of them alone explains",
    ),
    "a kill that no cgroup counted": Case("os.kill(os.getpid(), 9)", "who sent", exits=-9, alone=True),
    "a signal that nobody explains": Case("os.kill(os.getpid(), 15)", "who sent", exits=-15, alone=True),
    "the driver says out of memory while most of the card is free": Case(
        "ask(); (torch.randn(64, 1024, device='cuda') * 2).sum().item(); torch.cuda.synchronize()",
        "free",
        alone=True,
        settings=(("cuda_error", 2),),
    ),
}


class Beside:
    """A stranger, and one that the driver hides; they come when the script asks and stay."""

    def __init__(self, case):
        self.case = case

    def __call__(self, product):
        wait_until(lambda: (product.folder / "ready").exists(), 90)
        run = rundir.find("latest", {"GPUMEM_TUI_HOME": str(product.home)})
        machine = SimulatedMachine(product.libraries, run.path / "simcard.state")
        if not self.case.alone:
            hidden = machine.hold(0, SHARE_BYTES, "hidden")
            machine.set(nvml_hide_pid=hidden.pid)
            product._processes += [hidden, machine.hold(0, SHARE_BYTES, "stranger")]
            wait_until(lambda: any(d.ledger.others for d in Recording(run).read().devices), 30)
        machine.set(**dict(self.case.settings))
        time.sleep(1.5)
        (product.folder / "go").touch()


@pytest.fixture(scope="module")
def runs(tmp_path_factory, simcard_libraries):
    made = Runs(tmp_path_factory.mktemp("near"), simcard_libraries)
    try:
        with ThreadPoolExecutor(2) as pool:
            waiting = []
            for name, case in CASES.items():
                beside = Beside(case) if "ask()" in case.script else None
                script = SHARES + textwrap.dedent(case.script)
                waiting.append(pool.submit(made.run, name, script, exits=case.exits, meanwhile=beside))
            for each in waiting:
                each.result()
        yield made
    finally:
        made.end()


@pytest.mark.parametrize("name", CASES)
def test_a_near_miss_is_unknown_and_says_what_would_decide(runs, name):
    leading, *others = first_of(runs.states[name]).findings

    assert (leading.verdict, leading.strength) == (Verdict.UNKNOWN, Strength.UNDECIDED)
    assert leading.check
    assert leading.missing
    assert not any(finding.strength is Strength.SUPPORTED for finding in others)
    told = [leading.headline, *leading.missing, *(each.says for each in leading.evidence)]
    assert CASES[name].says in " ".join(told)

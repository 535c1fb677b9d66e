"""What the live view costs: time to its first frame, processor and bytes while a run goes on. Reported."""

import json
import sys
from pathlib import Path

import longrun
import pytest
from product import COMMAND, wait_until
from terminal import Terminal
from test_cost_of_top import Cost, price_of_rest, watch

pytestmark = pytest.mark.slow
SECONDS = Path(__file__).with_name("seconds.py")

TWO_CARDS = """
import sys, time, torch, torch.nn as nn
models = [nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).to(f"cuda:{i}") for i in range(2)]
optimizers = [torch.optim.AdamW(m.parameters()) for m in models]
print("up", flush=True)
while True:
    for i, (m, o) in enumerate(zip(models, optimizers)):
        rows = 32 << (time.monotonic_ns() >> 30 & 7)
        m(torch.randn(rows, 512, device=f"cuda:{i}")).sum().backward(); o.step()
    time.sleep(0.05)
"""


def costs_of(gpumem, name, command, text):
    """A small and a large terminal beside each other."""
    return [
        Cost(f"{columns}×{rows}, {name}", command, gpumem.environment, gpumem.folder, text, (columns, rows))
        for columns, rows in ((80, 24), (160, 50))
    ]


def test_eight_ranks_on_eight_devices_at_one_hertz(gpumem, tmp_path, capsys):
    run = longrun.write(tmp_path / "eight", hours=0.05, bucket_s=0)
    command = [*COMMAND, "replay", str(run.path), "--speed", "1"]
    costs = costs_of(gpumem, "eight ranks played", command, "step")
    watch(*costs, settle_s=3, seconds=10)
    with capsys.disabled():
        print("", *costs, sep="\n")

    for cost in costs:
        assert cost.share < 0.2
        assert cost.rate < 3 << 10


@pytest.mark.parametrize(("skipped", "counted"), [(1, 12), (100, 100)])
def test_a_second_of_eight_ranks_by_part(gpumem, tmp_path, capsys, skipped, counted):
    run = longrun.write(tmp_path / "eight", hours=0.06, bucket_s=0)
    result = tmp_path / "parts.json"
    words = [sys.executable, SECONDS, run.path, skipped, counted, result]
    view = Terminal([*map(str, words)], gpumem.environment, gpumem.folder, rows=50, columns=160)
    code = view.wait_for_end()
    parts = json.loads(result.read_text())
    with capsys.disabled():
        told = ", ".join(f"{name} {ms:.1f}" for name, ms in parts.items())
        print(f"\n160×50, seconds {skipped} to {skipped + counted} of eight ranks, ms of processor: {told}")

    assert code == 0
    assert parts["total"] < 200  # 15 are the budget, on an idle machine


@pytest.mark.simcard
def test_two_devices_at_one_hertz(gpumem, simcard_libraries, capsys):
    process = gpumem.start("run", "--simulate", "8GiB,8GiB", "--", sys.executable, "-c", TWO_CARDS)
    assert process.stdout.readline() == b"up\n"
    wait_until(lambda: len(gpumem.recording().read().devices) == 2, 20, "the recorder")
    costs = costs_of(gpumem, "two devices", [*COMMAND, "attach"], "GPU")
    watch(*costs, settle_s=3, seconds=10)
    with capsys.disabled():
        print("", *costs, sep="\n")

    for cost in costs:
        assert cost.first_s < 5
        assert cost.share < 0.3
        assert cost.rate < 32 << 10


@pytest.mark.simcard(devices=["24GiB"] * 8)
def test_eight_devices_beside_nvitop_in_one_run(gpumem, simcard, tmp_path, capsys):
    pytest.importorskip("nvitop")
    run = longrun.write(tmp_path / "eight", hours=0.05, bucket_s=0)
    ours = [*COMMAND, "replay", str(run.path), "--speed", "1"]
    theirs = [sys.executable, "-m", "nvitop", "--monitor", "full", "--interval", "1"]
    environment = {**gpumem.environment, **simcard.machine.monitor_environment()}
    costs = [
        Cost("gpumem-tui, eight ranks played", ours, gpumem.environment, gpumem.folder, "step"),
        Cost("nvitop, eight idle cards", theirs, environment, gpumem.folder, "Simulated card"),
    ]
    watch(*costs, settle_s=4, seconds=12)
    with capsys.disabled():
        print(f"\n8 cards, 160×50, 1 Hz; work after a second of rest takes × {price_of_rest():.1f} here:")
        for cost in costs:
            print(f"  {cost}")

    assert costs[0].rate < 3 << 10
    assert costs[0].share < max(0.2, 4 * costs[1].share)

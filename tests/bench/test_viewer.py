"""What the live view costs: time to its first frame, processor and bytes while a run goes on. Reported."""

import sys
import time

import psutil
import pytest
from product import COMMAND, wait_until
from terminal import Terminal

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

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


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (160, 50)])
def test_two_devices_at_one_hertz(gpumem, simcard_libraries, capsys, columns, rows):
    process = gpumem.start("run", "--simulate", "8GiB,8GiB", "--", sys.executable, "-c", TWO_CARDS)
    assert process.stdout.readline() == b"up\n"
    wait_until(lambda: len(gpumem.recording().read().devices) == 2, 20, "the recorder")
    view = Terminal([*COMMAND, "attach"], gpumem.environment, gpumem.folder, rows=rows, columns=columns)
    view.wait_for("GPU")
    first_s = time.monotonic() - view.started_s
    until = time.monotonic() + 3
    while time.monotonic() < until:
        view.read()
    watched = psutil.Process(view.child.pid)
    cpu, received, began = watched.cpu_times(), len(view.received), time.monotonic()
    while time.monotonic() < began + 10:
        view.read(0.5)
    took = time.monotonic() - began
    now = watched.cpu_times()
    share = (now.user + now.system - cpu.user - cpu.system) / took
    rate = (len(view.received) - received) / took
    with capsys.disabled():
        print(
            f"\n{columns}×{rows}, two devices: first frame {first_s:.2f} s, {100 * share:.1f} % of a core, "
            f"{rate / 1024:.2f} KiB/s, {watched.memory_info().rss >> 20} MiB"
        )
    view.child.close(force=True)

    assert first_s < 5
    assert share < 0.3
    assert rate < 32 << 10

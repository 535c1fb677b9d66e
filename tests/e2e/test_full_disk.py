"""The disk that holds the recording is full: the run goes on as if nothing were, and says so later."""

import contextlib
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

TRAIN = """
import torch, torch.nn as nn
model = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4000):
    model(torch.randn(4, 64, device="cuda")).sum().backward(); optimizer.step()
print("done", step)
"""


@pytest.fixture
def small_disk(gpumem):
    """The home on a file system of its own, of three MiB."""
    gpumem.home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(gpumem.home)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield gpumem
    gpumem.end()
    subprocess.run(["umount", "-l", str(gpumem.home)], check=True)


def test_a_run_outlives_the_space_for_its_recording(small_disk, simcard_libraries):
    done = small_disk("run", "--simulate", "8GiB", "--hertz", "100", "--", sys.executable, "-c", TRAIN)

    assert done.stdout == b"done 3999\n"
    assert done.stderr == b""
    usage = subprocess.run(
        ["df", "--output=avail", small_disk.home], capture_output=True, text=True, check=True
    )
    assert int(usage.stdout.split()[1]) < 64
    state = small_disk.recording().read()
    assert state.ranks[0].step > 10


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["run", "--anyway", "--batch", "--"], 6),
        (["run", "--simulate", "8GiB", "--batch", "--"], 2),
        (["sweep", "--anyway", "--vary", "n=1", "--", "echo", "{n}"], 6),
    ],
    ids=["real cards", "simulated cards", "a sweep"],
)
def test_a_disk_that_is_full_at_the_start_is_said_before_anything_is_run(
    small_disk, simcard_libraries, words, code
):
    filler = os.open(small_disk.home / "filler", os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(filler, b"x" * 4096)
    os.close(filler)

    done = small_disk(*words, "sh", "-c", "echo ran", exits=code)

    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert b"No space left on device" in done.stderr
    assert [*small_disk.home.glob("runs/*"), *small_disk.home.glob("sweeps/*")] == []

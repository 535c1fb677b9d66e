"""Two ranks on two simulated cards: every byte in its place, to the byte."""

import json
import sys

import pytest
from product import wait_until

from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.records import Sample
from gpumem_tui.session import Recording
from gpumem_tui.units import GIB, MIB

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

TRAIN = """
import ctypes, json, os, sys, time, torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(rank)
dist.init_process_group("nccl")
model = DistributedDataParallel(nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)]).cuda())
optimizer = torch.optim.AdamW(model.parameters())
for step in range(5):
    model(torch.randn(64, 1024, device="cuda")).sum().backward(); optimizer.step(); optimizer.zero_grad()
runtime, pointer = ctypes.CDLL(None), ctypes.c_void_p()
if rank == 0: assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(700 << 20)) == 0
torch.cuda.synchronize()
import pynvml; pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(rank)
memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
line = json.dumps({"rank": rank, "used": memory.used, "pid": os.getpid(),
    "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()})
os.write(1, (line + chr(10)).encode())
sys.stdin.close()
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
dist.destroy_process_group()
"""


@pytest.fixture
def training(gpumem, simcard_libraries):
    """Two ranks that hold what they hold and wait; (gpumem, what they printed, how to let them go)."""
    script, go = gpumem.folder / "train.py", gpumem.folder / "go"
    script.write_text(TRAIN)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = gpumem.start("run", "--simulate", "24GiB,24GiB", "--", *torchrun, script, go)
    said = {}
    for _ in range(2):
        line = json.loads(process.stdout.readline())
        said[line["rank"]] = line

    def release():
        go.touch()
        process.communicate(timeout=60)
        return process.returncode

    yield gpumem, said, release
    go.touch()


def settled(gpumem):
    """A picture in which both cards' ledgers are paired within tolerance, at rest."""
    recording = gpumem.recording()

    def look():
        state = recording.read()
        books = [device.ledger for device in state.devices]
        quiet = len(books) == 2 and all(
            len(book.ranks) == 1 and book.ranks[0].outside.bytes is not None and not book.ranks[0].skewed
            for book in books
        )
        return state if quiet else None

    return wait_until(look, 20, "a settled ledger")


def test_every_term_is_right_and_the_last_sample_is_what_the_script_said(training, simcard_libraries):
    gpumem, said, release = training
    gpumem.hold(simcard_libraries, 1, 6 * GIB, "stranger")
    recording = gpumem.recording()
    wait_until(lambda: any(d.ledger.others for d in recording.read().devices), 20, "the stranger")
    state = settled(gpumem)

    for index, device in enumerate(state.devices):
        book, script = device.ledger, said[index]
        (share,) = book.ranks
        assert share.rank == index
        assert share.allocated.bytes == script["allocated"]
        assert share.reserved.bytes == script["reserved"]
        assert book.unattributed.bytes == 0
        assert sum(size for _, size in book.parts()) == book.total.bytes
    first, second = (device.ledger for device in state.devices)
    assert first.device_used.bytes == said[0]["used"]
    assert first.ranks[0].outside.bytes - second.ranks[0].outside.bytes == 700 * MIB
    assert [(o.name, o.used.bytes >= 6 * GIB) for o in second.others] == [("stranger", True)]
    assert first.others == ()

    status = gpumem.machine(simcard_libraries).status()
    holders = {holder.pid: holder.total_bytes for holder in status.devices[1].processes}
    assert second.others[0].used.bytes == holders[second.others[0].pid]

    assert release() == 0
    samples = {}
    for head, record in Recording(gpumem.latest())._follower.poll():
        if isinstance(record, Sample) and record.reserved_bytes:
            samples[head.pid] = record
    for script in said.values():
        last = samples[script["pid"]]
        assert (last.allocated_bytes, last.reserved_bytes) == (script["allocated"], script["reserved"])


def test_a_process_hidden_by_the_driver_is_exactly_what_is_unattributed(training, simcard_libraries):
    gpumem, _, _ = training
    holder = gpumem.hold(simcard_libraries, 1, 6 * GIB)
    machine = gpumem.machine(simcard_libraries)
    machine.set(nvml_hide_pid=holder.pid)
    held = next(h.total_bytes for h in machine.status().devices[1].processes if h.pid == holder.pid)
    recording = gpumem.recording()

    def look():
        return recording.read().devices[1].ledger.unattributed.bytes

    assert wait_until(look, 20, "the residual") == held
    assert recording.read().devices[0].ledger.unattributed.bytes == 0


def test_report_says_the_same_as_json_with_raw_bytes(training):
    gpumem, said, release = training
    settled(gpumem)

    report = gpumem.report()

    assert report["run"]["simulated"] == "2 × 24 GiB"
    levels = {rank["rank"]: rank["levels"][0] for rank in report["ranks"]}
    assert {r: (v["allocated_bytes"], v["reserved_bytes"]) for r, v in levels.items()} == {
        r: (v["allocated"], v["reserved"]) for r, v in said.items()
    }
    assert release() == 0
    assert gpumem.recording().read().facts.life is Life.ENDED


def test_the_tasks_of_a_slurm_step_share_one_recording(gpumem, make_simcard):
    card = make_simcard("8GiB")
    code = "import torch, time, os; torch.empty(9, device='cuda'); print(os.environ['RANK']); time.sleep(2)"
    step = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "3"}
    tasks = [
        gpumem.start(
            "run", "--anyway", "--batch", "--", sys.executable, "-c", code,
            env={**card.environment(), **gpumem.own, **step, "SLURM_PROCID": str(i), "RANK": str(i)},
        )
        for i in range(3)
    ]  # fmt: skip
    said = sorted(task.communicate(timeout=60)[0] for task in tasks)

    assert said == [b"0\n", b"1\n", b"2\n"]
    assert [path.name for path in gpumem.home.glob("runs/*")] == ["slurm-77.0-node0"]
    state = gpumem.recording().read()
    assert [rank.rank for rank in state.ranks] == [0, 1, 2]
    assert state.facts.life is Life.ENDED
    assert len(list(gpumem.latest().journal.glob("driver*"))) == 1

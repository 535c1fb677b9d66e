"""Bytes are counted for all processes of the machine together, and dead ones hold none."""

import signal
import time
from pathlib import Path

import pytest

from gpumem_tui.simcard.cards import context_bytes

GIB, MIB = 1 << 30, 1 << 20
CONTEXT = context_bytes((8, 6))

CHURN = """
import ctypes, random, sys
runtime = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
for i in range(int(sys.argv[2])):
    p = ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(random.randrange(1, 50 << 20))) == 0
    assert runtime.cudaFree(p) == 0
"""


def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


@pytest.mark.slow
@pytest.mark.simcard(devices=["24GiB", "24GiB"])
def test_pytorch_nvml_and_the_machine_agree_on_who_holds_what(simcard):
    other = simcard.hold("3GiB", device=1, name="other")

    simcard.python(f"""
        import os, torch, pynvml
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(1)
        x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda:1")
        v1 = pynvml.nvmlDeviceGetMemoryInfo(handle)
        v2 = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        free, total = torch.cuda.mem_get_info(1)
        assert v2.used == (4 << 30) + 2 * {CONTEXT}, v2.used
        assert v1.used == v2.used + v2.reserved and v1.free == v2.free == free and v2.reserved > 0
        for version in (2, 3):
            call = getattr(pynvml, f"nvmlDeviceGetComputeRunningProcesses_v{{version}}")
            assert {{p.pid: p.usedGpuMemory for p in call(handle)}} == {{
                os.getpid(): (1 << 30) + {CONTEXT}, {other.pid}: (3 << 30) + {CONTEXT}}}
        assert pynvml.nvmlSystemGetProcessName({other.pid}) == "other"
        assert pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0)) == []
        before = torch.cuda.mem_get_info(0)[0]            # makes the context on device 0
        y = torch.empty(100 << 20, dtype=torch.uint8, device="cuda:0")
        assert before - torch.cuda.mem_get_info(0)[0] == 100 << 20
        del y
        torch.cuda.empty_cache()
        assert torch.cuda.mem_get_info(0)[0] == before

        import ctypes, importlib.util, sys   # memory that PyTorch's allocator does not know
        spec = importlib.util.spec_from_file_location("outside", {str(simcard.outside)!r})
        outside = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(outside)
        block = outside.Block(200 << 20)
        assert before - torch.cuda.mem_get_info(0)[0] == 200 << 20 and torch.cuda.memory_reserved(0) == 0
        block.free()
        assert torch.cuda.mem_get_info(0)[0] == before
        try:
            outside.Block(100 << 30)
            raise SystemExit("no error")
        except MemoryError:
            pass
    """)

    (holder,) = simcard.device(1).processes
    assert (holder.pid, holder.name, holder.bytes) == (other.pid, "other", 3 * GIB)
    assert simcard.device(1).used_bytes == holder.total_bytes == 3 * GIB + CONTEXT


@pytest.mark.simcard(devices=["24GiB", "24GiB"])
def test_a_killed_process_holds_nothing_even_as_a_zombie(simcard):
    other = simcard.hold("3GiB", device=1)

    other.send_signal(signal.SIGKILL)

    assert until(lambda: simcard.device(1).used_bytes == 0)
    assert other.returncode is None  # nobody has waited for it


def test_a_holder_changes_what_it_holds_and_is_told_when_that_does_not_fit(simcard):
    other = simcard.hold("3GiB")

    def ask(size):
        other.stdin.write(f"{size}\n")
        other.stdin.flush()
        return other.stdout.readline().strip()

    assert ask(5 * GIB) == f"holding {5 * GIB}"
    assert simcard.device().used_bytes == 5 * GIB + CONTEXT
    assert ask(50 * GIB) == "out of memory"
    assert simcard.device().used_bytes == 5 * GIB + CONTEXT
    assert ask(GIB) == f"holding {GIB}"
    other.stdin.close()
    assert other.wait(5) == 0
    assert simcard.device().used_bytes == 0


@pytest.mark.slow
def test_processes_that_allocate_and_are_killed_at_random_leave_nothing(simcard):
    runtime = next(p for p in simcard.libraries.preload if "cudart" in p.name)
    times = ["1000000000"] * 3 + ["4000"] * 3
    churn = [simcard.start_python(CHURN, str(runtime), n) for n in times]
    for process in churn:
        assert process.stdout.readline() == "ready\n"

    for process in churn[:3]:
        process.kill()
    for process in churn:
        process.communicate(timeout=60)

    assert [process.returncode for process in churn] == [-9] * 3 + [0] * 3
    assert simcard.device().used_bytes == 0
    assert simcard.device().processes == ()


@pytest.mark.slow
def test_forked_children_take_no_place_unless_they_use_the_card(simcard):
    done = simcard.python(
        """
        import os, torch
        from torch.utils.data import DataLoader, TensorDataset
        x = torch.empty(1 << 20, device="cuda")
        seen = set()
        data = TensorDataset(torch.arange(64.))
        for batch, in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
            batch = batch.to("cuda", non_blocking=True)
            seen.update(batch.tolist())
        assert seen == set(map(float, range(64))), seen
        child = os.fork()
        if not child:
            del x                 # gives back what the parent holds, which is not its own
            os._exit(0)
        os.waitpid(child, 0)
        from gpumem_tui.simcard import SimulatedMachine, Libraries
        from pathlib import Path
        import sys
        machine = SimulatedMachine(Libraries(Path(sys.argv[1])), Path(os.environ["SIMCARD_STATE"]))
        (own,) = machine.status().devices[0].processes
        assert own.pid == os.getpid() and own.bytes >= 4 << 20, own
    """,
        str(simcard.libraries.folder),
        env={"PYTHONPATH": str(Path.cwd())},
    )

    assert done.stderr == ""


@pytest.mark.simcard(devices=["8GiB"])
def test_a_hidden_process_counts_as_used_and_is_in_no_list(simcard, tmp_path):
    shown, hidden = simcard.hold("1GiB", name="shown"), simcard.hold("2GiB", name="hidden")
    simcard.fault(nvml_hide_pid=hidden.pid)

    done = simcard.python("""
        import pynvml as n
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        for call in (n.nvmlDeviceGetComputeRunningProcesses_v2, n.nvmlDeviceGetComputeRunningProcesses_v3):
            print(*(f"{p.pid}:{p.usedGpuMemory}" for p in call(h)))
        print(n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2).used)
    """)

    row = f"{shown.pid}:{GIB + CONTEXT}"
    assert done.stdout.split() == [row, row, str(3 * GIB + 2 * CONTEXT)]
    assert simcard.device().used_bytes == 3 * GIB + 2 * CONTEXT

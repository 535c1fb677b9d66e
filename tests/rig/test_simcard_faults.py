"""What NVML and CUDA can do wrong: for one process, and changed while a program runs."""

import time

import pytest

pytestmark = pytest.mark.slow

START = """
import os, sys, time, torch, pynvml as n
x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
def error(f, *a, **k):
    try:
        f(*a, **k)
        return "none"
    except n.NVMLError as e:
        return type(e).__name__.removeprefix("NVMLError_")
"""

WITH_NVML = START + "n.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex(0)\n"

SWITCHED = """
other = n.nvmlDeviceGetHandleByIndex(1)
def processes(): return n.nvmlDeviceGetComputeRunningProcesses(h)
checks = {
    "none": lambda: processes()[0].usedGpuMemory > 1 << 30 and error(n.nvmlDeviceGetMemoryInfo, h) == "none",
    "no memory of processes": lambda: [p.usedGpuMemory for p in processes()] == [None],
    "other namespace": lambda: not os.path.exists(f"/proc/{processes()[0].pid}")
        and error(n.nvmlSystemGetProcessName, processes()[0].pid) == "NotFound",
    "no list": lambda: processes() == [],
    "no permission": lambda: error(n.nvmlDeviceGetComputeRunningProcesses, h) == "NoPermission",
    "no v2": lambda: error(n.nvmlDeviceGetMemoryInfo, h, version=n.nvmlMemory_v2) == "NotSupported"
        and n.nvmlDeviceGetMemoryInfo(h).used > 1 << 30,
    "no memory": lambda: error(n.nvmlDeviceGetMemoryInfo, h) == "NotSupported",
    "busy": lambda: n.nvmlDeviceGetUtilizationRates(h).gpu == 77 and n.nvmlDeviceGetTemperature(h, 0) == 65,
    "no telemetry": lambda: error(n.nvmlDeviceGetUtilizationRates, h) == "NotSupported"
        and error(n.nvmlDeviceGetPowerUsage, h) == "NotSupported",
    "slow": lambda: (t := time.time()) and error(n.nvmlDeviceGetMemoryInfo, h) == "none"
        and time.time() - t > .19,
    "lost": lambda: error(n.nvmlDeviceGetMemoryInfo, h) == "GpuIsLost"
        and error(n.nvmlDeviceGetComputeRunningProcesses, h) == "GpuIsLost"
        and error(n.nvmlDeviceGetMemoryInfo, other) == "none",
    "no driver": lambda: n.nvmlShutdown() or error(n.nvmlInit) == "DriverNotLoaded",
    "mismatch": lambda: error(n.nvmlInit) == "LibRmVersionMismatch",
}
for line in sys.stdin:
    print(checks[line.strip()](), flush=True)
"""

FAULTS = {  # what the program should see → the settings that make it so, one after the other
    "none": {},
    "no memory of processes": {"nvml_process_memory": 0},
    "other namespace": {"nvml_process_list": 2},
    "no list": {"nvml_process_list": 1},
    "no permission": {"nvml_process_error": "NO_PERMISSION"},
    "no v2": {"nvml_memory_v2_error": "NOT_SUPPORTED"},
    "no memory": {"nvml_memory_error": "NOT_SUPPORTED"},
    "busy": {"utilization": 77},
    "no telemetry": {"nvml_telemetry_error": "NOT_SUPPORTED"},
    "slow": {"nvml_delay_ms": 200},
    "lost": {"nvml_error": "GPU_IS_LOST", "nvml_error_device": 0},
    "no driver": {"nvml_init_error": "DRIVER_NOT_LOADED"},
    "mismatch": {"nvml_init_error": "LIB_RM_VERSION_MISMATCH"},
}


@pytest.mark.simcard(devices=["24GiB", "24GiB"])
def test_faults_are_switched_while_the_program_runs(simcard):
    whole = simcard.machine.settings()
    child = simcard.start_python(WITH_NVML + SWITCHED)
    seen = {}

    for name, settings in FAULTS.items():
        simcard.fault(**settings)
        child.stdin.write(name + "\n")
        child.stdin.flush()
        seen[name] = child.stdout.readline().strip()
        simcard.fault(**{setting: whole[setting] for setting in settings})

    assert seen == dict.fromkeys(FAULTS, "True"), child.communicate()[1]


def test_a_fault_may_begin_later(simcard):
    child = simcard.start_python(
        WITH_NVML
        + """
print("ready", flush=True); sys.stdin.readline()
assert error(n.nvmlDeviceGetMemoryInfo, h) == "none"
sys.stdin.readline()
assert error(n.nvmlDeviceGetMemoryInfo, h) == "GpuIsLost"
"""
    )
    assert child.stdout.readline() == "ready\n"

    begins = time.time() + 1
    simcard.fault(nvml_error="GPU_IS_LOST", nvml_error_at=begins)
    child.stdin.write("\n")
    child.stdin.flush()
    time.sleep(max(0.0, begins + 0.1 - time.time()))
    _, err = child.communicate("\n", timeout=60)

    assert child.returncode == 0, err


def test_telemetry_follows_the_work_until_the_card_breaks(simcard):
    child = simcard.start_python(
        WITH_NVML
        + """
assert n.nvmlDeviceGetUtilizationRates(h).gpu == 0
until = time.monotonic() + 60  # a machine that has others to serve may leave the card idle meanwhile
while n.nvmlDeviceGetUtilizationRates(h).gpu <= 10:
    assert time.monotonic() < until
    for _ in range(2000): x[:10].add_(1)
assert n.nvmlDeviceGetTemperature(h, 0) > 35 and n.nvmlDeviceGetPowerUsage(h) > 30000
print("worked", flush=True); sys.stdin.readline()
try:
    x[:10].add_(1)
    torch.cuda.synchronize()
    raise SystemExit("no error")
except RuntimeError as e:
    print(e)
os._exit(0)
"""
    )
    assert child.stdout.readline() == "worked\n"

    simcard.fault(cuda_error=700)
    out, err = child.communicate("\n", timeout=60)

    assert child.returncode == 0, err
    assert "an illegal memory access was encountered" in out


def test_without_the_library_nvml_is_not_found_and_pytorch_works(simcard):
    simcard.python(START + "assert error(n.nvmlInit) == 'LibraryNotFound'", nvml=False)


def test_mig_instances_share_a_card_evenly(simcard):
    # One card: PyTorch itself counts cards by NVML, and asks CUDA for as many.
    simcard.fault(mig=2)

    simcard.python("""
        import pynvml as n, torch
        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)
        assert n.nvmlDeviceGetMigMode(h) == [1, 1]
        parts = [n.nvmlDeviceGetMigDeviceHandleByIndex(h, i) for i in range(2)]
        assert torch._C._cuda_getDeviceCount() == 1              # CUDA sees one instance
        x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        assert n.nvmlDeviceGetUUID(parts[0]).startswith("MIG-")
        assert len(n.nvmlDeviceGetComputeRunningProcesses(parts[0])) == 1
        assert n.nvmlDeviceGetComputeRunningProcesses(parts[1]) == []
        assert n.nvmlDeviceGetMemoryInfo(parts[0]).total == 12 << 30 > torch.cuda.mem_get_info()[1] > 11 << 30
        try:
            torch.empty(12 << 30, dtype=torch.uint8, device="cuda")
            raise SystemExit("no error")
        except torch.OutOfMemoryError:
            pass
    """)

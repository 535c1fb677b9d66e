"""The state file, its settings, and this process's own look at the machine."""

import json
import os
import stat
import subprocess
import sys

import pytest

from gpumem_tui.errors import BadInput
from gpumem_tui.simcard import SimulatedMachine, cards

GIB = 1 << 30


def test_the_state_is_private_and_says_what_was_asked_for(simcard):
    status = simcard.status()
    (device,) = status.devices

    assert stat.S_IMODE(simcard.state.stat().st_mode) == 0o600
    assert (status.name, status.compute_capability) == ("Simulated card", "8.6")
    assert (device.total_bytes, device.used_bytes, device.processes) == (24 * GIB, 0, ())
    assert device.reserved_bytes == 24 * GIB // 80 // (2 << 20) * (2 << 20)
    assert simcard.machine.settings()["context_bytes"] == cards.context_bytes((8, 6))


def test_a_machine_is_made_anew_only_when_nobody_uses_it(simcard):
    holder = simcard.hold("1GiB")

    with pytest.raises(BadInput, match="in use"):
        SimulatedMachine.create(simcard.libraries, simcard.state, devices=[GIB])
    holder.stdin.close()
    holder.wait()
    again = SimulatedMachine.create(
        simcard.libraries, simcard.state, devices=[GIB, GIB], name='a "name"', kernel_us=5
    )

    assert len(again.status().devices) == 2
    assert again.status().name == 'a "name"'
    assert again.settings()["kernel_us"] == 5
    assert simcard.status() == again.status()  # an old handle sees the new machine


def test_what_is_no_state_file_of_ours_is_refused(simcard, tmp_path):
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_text("hello")
    link.symlink_to(simcard.state)

    with pytest.raises(BadInput, match="no state file of this version"):
        SimulatedMachine(simcard.libraries, other)
    with pytest.raises(BadInput, match="No such file"):
        SimulatedMachine(simcard.libraries, tmp_path / "missing")
    with pytest.raises(BadInput):
        SimulatedMachine(simcard.libraries, link)
    with pytest.raises(BadInput, match="1 to 16 devices"):
        SimulatedMachine.create(simcard.libraries, tmp_path / "new", devices=[])
    assert other.read_text() == "hello"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that is another user's")
def test_the_machine_of_another_user_is_refused(simcard):
    os.chown(simcard.state, 12345, 12345)

    with pytest.raises(BadInput, match="belongs to another user"):
        SimulatedMachine(simcard.libraries, simcard.state)
    with pytest.raises(BadInput, match="belongs to another user"):
        SimulatedMachine.create(simcard.libraries, simcard.state, devices=[GIB])


def test_settings_are_known_by_name(simcard):
    with pytest.raises(BadInput, match="no setting 'kernel_ms'; it has context_bytes"):
        simcard.fault(kernel_ms=1)
    with pytest.raises(BadInput, match=r"cannot hold 30\.0 GiB on device 0: out of memory"):
        simcard.hold("30GiB")


def test_the_assumptions_follow_the_settings(simcard):
    simcard.fault(context_bytes="300MiB")

    told = {assumption.name: assumption.bytes for assumption in simcard.machine.assumptions()}

    assert told["CUDA context"] == 300 << 20
    assert told["driver-reserved"] == simcard.device().reserved_bytes
    assert set(told) >= {"cuDNN workspace", "NCCL communicator"}


IN_PROCESS = """
import os, sys
from pathlib import Path
from gpumem_tui.simcard import Libraries, load_nvml
assert "LD_LIBRARY_PATH" not in os.environ
load_nvml(Libraries(Path(sys.argv[1])), Path(sys.argv[2]))
import pynvml
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetName(h), pynvml.nvmlDeviceGetMemoryInfo(h).total, sep="|")
print([p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(h)])
pynvml.nvmlShutdown()
"""


def clean_environment():
    return {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}


def test_pynvml_finds_a_library_that_was_loaded_by_its_path(simcard):
    holder = simcard.hold("1GiB")
    command = [sys.executable, "-c", IN_PROCESS, str(simcard.libraries.folder), str(simcard.state)]

    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=60)

    assert done.stdout == f"Simulated card|{24 * GIB}\n[{holder.pid}]\n", done.stderr


def test_a_monitor_sees_the_machine_without_anything_preloaded(simcard):
    environment = simcard.machine.monitor_environment(clean_environment())
    code = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount(), n.nvmlSystemGetDriverVersion())"

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )

    assert "LD_PRELOAD" not in environment
    assert done.stdout == "1 580.00.00\n", done.stderr


@pytest.mark.slow
def test_without_a_machine_there_is_no_device_and_no_word_of_ours(simcard):
    environment = simcard.environment()
    environment["SIMCARD_STATE"] = str(simcard.folder / "missing")
    code = """
import torch, pynvml
print(torch.cuda.is_available())
try:
    pynvml.nvmlInit()
except pynvml.NVMLError as error:
    print(error)
"""

    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )

    assert (done.stdout, done.stderr, done.returncode) == ("False\nDriver Not Loaded\n", "", 0)


def tool(*arguments, **options):
    command = [sys.executable, "-m", "gpumem_tui.simcard", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_the_command_line_tool(simcard, tmp_path):
    state = ("--state", tmp_path / "by-hand", "--python", sys.executable)

    assert tool(*state, "reset", "--devices", "8GiB,4GiB").returncode == 0
    assert tool(*state, "fault", "kernel_us=7", "nvml_error=GPU_IS_LOST").returncode == 0
    assert "nvml_error=15\n" in tool(*state, "fault").stdout
    status = json.loads(tool(*state, "status").stdout)
    assert [device["total_bytes"] for device in status["devices"]] == [8 * GIB, 4 * GIB]
    held = tool(*state, "hold", "--device", "1", "--bytes", "1GiB", stdin=subprocess.DEVNULL)
    assert (held.returncode, held.stdout) == (0, f"holding {GIB}\n")
    ran = tool(*state, "run", "--set", "kernel_us=1", "--", "sh", "-c", "echo $SIMCARD_KERNEL_US; exit 3")
    assert (ran.returncode, ran.stdout) == (3, "1.0\n")
    assert tool(*state, "run", "--", "no-such-program").returncode == 127
    refused = tool(*state, "reset", "--devices", "8GB")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)

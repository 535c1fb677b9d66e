"""top beside nvitop, nvtop and gpustat on one simulated driver: the same figures where theirs are right."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.simcard(devices=["24GiB", "8GiB"])]

GIB, MIB = 1 << 30, 1 << 20

NVITOP = """
import json
from nvitop import Device
def known(value):
    return value if isinstance(value, int) else None
print(json.dumps([
    {"uuid": d.uuid(), "total": known(d.memory_total()), "used": known(d.memory_used()),
     "free": known(d.memory_free()),
     "processes": {pid: known(p.gpu_memory()) for pid, p in d.processes().items()}}
    for d in Device.all()
]))
"""


@pytest.fixture
def ours(gpumem, simcard):
    def read():
        return json.loads(gpumem("top", "--json", env=simcard.machine.monitor_environment()).stdout)

    return read


@pytest.fixture
def nvitop(simcard):
    pytest.importorskip("nvitop")

    def read():
        done = subprocess.run(
            [sys.executable, "-c", NVITOP],
            env=simcard.machine.monitor_environment(),
            capture_output=True,
            check=True,
        )
        return json.loads(done.stdout)

    return read


@pytest.fixture
def gpustat(simcard):
    pytest.importorskip("gpustat", reason="gpustat is not installed: pip install -e '.[peers]'")

    def read():
        done = subprocess.run(
            [sys.executable, "-m", "gpustat", "--json"],
            env=simcard.machine.monitor_environment(),
            capture_output=True,
            check=True,
        )
        return json.loads(done.stdout)["gpus"]

    return read


@pytest.fixture
def nvtop(simcard, tmp_path):
    """What its screen says: (GiB used, GiB in all) of each card, and MiB by (card, pid)."""
    if shutil.which("nvtop") is None:
        pytest.skip("nvtop is not installed: apt install nvtop")

    def read(processes):
        environment = {**simcard.machine.monitor_environment(), "HOME": str(tmp_path)}
        view = Terminal(["nvtop", "--no-plot", "--no-color"], environment, tmp_path, 50, 160)
        rows = {}
        while len(rows) < processes:
            screen = view.wait_for("GPU MEM")
            found = re.findall(r"^ *(\d+) +\S+ +(\d+) .*?(\d+)MiB", screen, re.MULTILINE)
            rows = {(int(device), int(pid)): int(size) for pid, device, size in found}
        cards = re.findall(r"MEM\[[| ]*([\d.]+)Gi/([\d.]+)Gi", screen)
        view.child.close(force=True)
        return [(float(used), float(total)) for used, total in cards], rows

    return read


def by_process(picture, device):
    return {str(p["pid"]): p["used"]["bytes"] for p in picture["processes"] if p["device"] == device}


@pytest.fixture
def busy(simcard):
    """Several processes on both cards."""
    for number, device in enumerate((0, 0, 1, 0, 1)):
        simcard.hold((number + 1) * 400 * MIB, device=device, name=f"holder{number}")
    simcard.hold("1GiB", device=0)


def test_totals_used_free_and_every_process_are_nvitop_s(busy, ours, nvitop):
    picture = ours()
    mine = [
        {
            "uuid": f"GPU-{device['uuid']}",
            "total": device["total"]["bytes"],
            "used": device["used"]["bytes"],
            "free": device["free"]["bytes"],
            "processes": by_process(picture, device["index"]),
        }
        for device in picture["devices"]
    ]

    assert mine == nvitop()


def test_totals_used_and_every_process_are_gpustat_s_to_the_mebibyte(busy, ours, gpustat):
    picture = ours()
    mine = [
        {
            "total": device["total"]["bytes"] // MIB,
            "used": device["used"]["bytes"] // MIB,
            "processes": {int(p): size // MIB for p, size in by_process(picture, device["index"]).items()},
        }
        for device in picture["devices"]
    ]
    theirs = [
        {
            "total": gpu["memory.total"],
            "used": gpu["memory.used"],
            "processes": {p["pid"]: p["gpu_memory_usage"] for p in gpu["processes"]},
        }
        for gpu in gpustat()
    ]

    assert mine == theirs


def test_totals_used_and_every_process_are_nvtop_s_as_far_as_its_screen_shows_them(busy, ours, nvtop):
    picture = ours()
    rows = {(p["device"], p["pid"]): p["used"]["bytes"] // MIB for p in picture["processes"]}
    cards, theirs = nvtop(len(rows))
    used = [device["used"]["bytes"] / GIB for device in picture["devices"]]
    of_driver = [device["driver_reserved"]["bytes"] / GIB for device in picture["devices"]]
    shown = pytest.approx(used, abs=0.001)
    with_driver = pytest.approx([a + b for a, b in zip(used, of_driver, strict=True)], abs=0.001)

    assert theirs == rows
    assert [total for _, total in cards] == [24, 8]
    assert [used for used, _ in cards] in (shown, with_driver)  # version 3.0 counts the driver's


def test_processes_of_another_pid_namespace_agree_with_nvitop_which_keeps_them(busy, simcard, ours, nvitop):
    simcard.fault(nvml_process_list=2)
    picture = ours()

    assert len(picture["processes"]) == 6
    assert [by_process(picture, i) for i in (0, 1)] == [gpu["processes"] for gpu in nvitop()]


def test_a_card_that_shares_the_host_s_memory_is_missing_here_and_host_memory_in_nvitop(
    busy, simcard, ours, nvitop
):
    simcard.fault(nvml_memory_error="NOT_SUPPORTED")
    mine, theirs = ours()["devices"][0], nvitop()[0]

    assert (mine["total"]["bytes"], mine["total"]["reason"]) == (None, "not supported")
    assert theirs["total"] not in (None, 24 * GIB)  # what we differ from: it is the host's


def test_without_version_2_of_the_call_used_is_told_to_include_the_driver_s_share(
    busy, simcard, ours, gpustat
):
    before = ours()["devices"][0]
    simcard.fault(nvml_memory_v2_error="FUNCTION_NOT_FOUND")
    mine = ours()["devices"][0]

    assert mine["used"]["bytes"] == before["used"]["bytes"] + before["driver_reserved"]["bytes"]
    assert mine["used"]["detail"] == "includes driver-reserved"
    assert mine["driver_reserved"] == {**mine["driver_reserved"], "bytes": None, "reason": "not supported"}
    assert mine["free"]["bytes"] == before["free"]["bytes"]
    assert gpustat()[0]["memory.used"] == mine["used"]["bytes"] // MIB

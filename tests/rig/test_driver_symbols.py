"""Drivers of other ages: each function that a library may lack, and answers that make no sense to pynvml."""

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.simcard(devices=["24GiB", "8GiB"])]

GIB = 1 << 30

LOOK = """
import json, sys
import pynvml
from gpumem_tui.session.top import Top
from gpumem_tui.sources.driver import Driver
from gpumem_tui.views import topjson

real, asked, gone, nonsense = pynvml._nvmlGetFunctionPointer, set(), set(), set()

def lookup(name):
    asked.add(name)
    if name in gone:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    if name in nonsense:
        b"\\xff".decode()
    return real(name)

pynvml._nvmlGetFunctionPointer = lookup

def look():
    top = Top(Driver())
    picture = topjson.document(top.read_whole(2.0))
    top.close()
    return picture

whole = look()
names = sorted(asked)
pictures = {}
for name in names:
    gone.add(name)
    pictures["without " + name] = look()
    gone.clear()
    nonsense.add(name)
    pictures["nonsense from " + name] = look()
    nonsense.clear()
gone.update(name for name in names if name.endswith("_v3"))
pictures["before 510"] = look()
print(json.dumps([names, whole, pictures]))
"""

NOT_WITHOUT = {"nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"}
"""Without these, and only these, nothing can be said of a card."""


@pytest.fixture
def told(simcard):
    """Which functions are asked for, the picture of a whole library, and those without each of them."""
    simcard.hold("3GiB", device=0)
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=simcard.machine.monitor_environment(),
        capture_output=True,
        timeout=120,
    )
    assert done.stderr == b""  # never a traceback
    return json.loads(done.stdout)


def memory(picture):
    return [(d["label"], d["total"]["bytes"], d["free"]["bytes"]) for d in picture["devices"]]


def rows(picture):
    return [(p["device"], p["pid"], p["used"]["bytes"]) for p in picture["processes"]]


def test_a_library_that_lacks_one_function_or_answers_with_nonsense_costs_no_other_figure(told):
    names, whole, pictures = told
    assert len(names) > 15 and memory(whole)[0][1] == 24 * GIB

    for about, picture in pictures.items():
        name = about.split()[-1]
        if name in NOT_WITHOUT:
            assert all(figure is None for _, *figures in memory(picture) for figure in figures), about
        elif about == "nonsense from nvmlDeviceGetMemoryInfo_v2":
            assert [d["total"]["reason"] for d in picture["devices"]] == ["failed", "failed"]
        else:
            assert memory(picture) == memory(whole), about
        if name not in NOT_WITHOUT and about != "nonsense from nvmlDeviceGetComputeRunningProcesses_v3":
            assert rows(picture) == rows(whole), about


def test_a_card_that_does_not_tell_its_uuid_still_tells_its_name_and_place(told):
    (first, _) = told[2]["without nvmlDeviceGetUUID"]["devices"]

    assert (first["uuid"], first["name"]) == (None, "Simulated card")
    assert first["pci"].startswith("00000000:")


def test_a_driver_older_than_version_3_of_the_lists_is_asked_for_version_2(told):
    _, whole, pictures = told
    old = pictures["before 510"]

    assert rows(old) == rows(whole)
    assert [d["processes_reason"] for d in old["devices"]] == [None, None]

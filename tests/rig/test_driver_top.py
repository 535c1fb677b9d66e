"""top on simulated cards, live: each fault of the driver in turn, its reason, its end, no harm to others."""

import json
import os
import subprocess
import sys
import time

import pytest
from product import COMMAND
from terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.simcard(devices=["24GiB", "8GiB"])]

GIB = 1 << 30

WATCH = """
import sys
from gpumem_tui.session.top import Top
from gpumem_tui.sources.driver import Driver
from gpumem_tui.views import topjson, topscreen
from gpumem_tui.views.text import plain
import msgspec, time
top = Top(Driver(hertz=10, retry_s=0.5, stale_s=0.6))
while True:
    state = top.read()
    lines = [plain(line) for line in topscreen.draw(state, topscreen.Place(), 120, 40).lines]
    sys.stdout.buffer.write(msgspec.json.encode([topjson.document(state), lines]) + b"\\n")
    sys.stdout.buffer.flush()
    time.sleep(0.1)
"""


class Watch:
    """Pictures of a machine as top makes them, as JSON and as a screen; the latest wins."""

    def __init__(self, card):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WATCH],
            env=card.machine.monitor_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.screen = ""

    def until(self, fits, what):
        """The next picture that fits."""
        until_s = time.monotonic() + 30
        while time.monotonic() < until_s:
            picture, lines = json.loads(self.process.stdout.readline())
            self.screen = "\n".join(lines)
            if fits(picture):
                return picture
        raise AssertionError(f"never {what}; last {json.dumps(picture)[:3000]}\n{self.screen}")

    def healthy(self):
        """A picture in which everything can be read."""
        return self.until(lambda p: len(p["devices"]) == 2 and all(map(well, p["devices"])), "all cards well")


def well(device):
    return (
        device["total"]["bytes"] is not None
        and device["processes_reason"] is None
        and device["load"]["reason"] is None
    )


@pytest.fixture
def watch(simcard):
    started = []

    def start(card=simcard):
        started.append(Watch(card))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        _, said = each.process.communicate()
        assert said == b""  # never a traceback, never a word


def figures(device):
    """Every figure of a card that claims to be one."""
    return {name: device[name]["bytes"] for name in ("total", "used", "free")}


FAULTS = [
    ({"nvml_error": "GPU_IS_LOST", "nvml_error_device": 0}, "lost", "lost: GPU is lost"),
    ({"nvml_error": "RESET_REQUIRED", "nvml_error_device": 0}, "lost", "lost: GPU requires restart"),
    ({"nvml_error": "NO_PERMISSION", "nvml_error_device": 0}, "no permission", "no permission"),
    ({"nvml_error": "UNKNOWN", "nvml_error_device": 0}, "failed", "failed: Unknown Error"),
    ({"nvml_error": "NOT_SUPPORTED", "nvml_error_device": 0}, "not supported", "not supported"),
]


def test_each_fault_of_a_card_in_turn_has_its_reason_harms_no_other_card_and_ends(simcard, watch):
    simcard.hold("3GiB", device=0)
    neighbour = simcard.hold("2GiB", device=1)
    watching = watch()
    before = watching.healthy()
    for fault, reason, words in FAULTS:
        simcard.fault(**fault)
        ill = watching.until(
            lambda p, reason=reason: p["devices"][0]["total"]["reason"] == reason, f"{reason} on card 0"
        )
        shown = watching.screen
        simcard.fault(nvml_error=0, nvml_error_device=-1)
        after = watching.healthy()

        assert set(figures(ill["devices"][0]).values()) == {None}
        assert figures(ill["devices"][1]) == figures(before["devices"][1])
        assert [p["pid"] for p in ill["processes"] if p["device"] == 1] == [neighbour.pid]
        assert f"GPU 0: memory — {words}" in shown
        assert figures(after["devices"][0]) == figures(before["devices"][0])


def test_each_fault_of_one_kind_of_reading_leaves_the_other_kinds_alone(simcard, watch):
    holder = simcard.hold("3GiB", device=0)
    watching = watch()
    before = watching.healthy()

    simcard.fault(nvml_memory_error="NOT_SUPPORTED")  # as where the card shares the host's memory
    shared = watching.until(
        lambda p: p["devices"][0]["total"]["reason"] == "not supported", "memory not supported"
    )
    host_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    simcard.fault(nvml_memory_error=0, nvml_process_error="NO_PERMISSION")
    blind = watching.until(
        lambda p: (
            p["devices"][0]["processes_reason"] == "no permission" and p["devices"][0]["total"]["bytes"]
        ),
        "processes not permitted",
    )
    blind_screen = watching.screen
    simcard.fault(nvml_process_error=0, nvml_graphics_error="NO_PERMISSION")
    partial = watching.until(lambda p: p["devices"][0]["processes_missing"] == ["G"], "no graphics processes")
    partial_screen = watching.screen
    simcard.fault(nvml_graphics_error=0, nvml_process_memory=0)
    bare = watching.until(
        lambda p: [r["used"]["reason"] for r in p["processes"]] == ["not supported"], "no figure"
    )
    simcard.fault(nvml_process_memory=1, nvml_telemetry_error="NOT_SUPPORTED")
    mute = watching.until(lambda p: p["devices"][0]["load"]["reason"] == "not supported", "no telemetry")
    simcard.fault(nvml_telemetry_error=0, nvml_memory_v2_error="FUNCTION_NOT_FOUND")
    old = watching.until(
        lambda p: p["devices"][0]["driver_reserved"]["reason"] == "not supported", "version 1 of the call"
    )
    after = watching.until(lambda p: p["processes"] and p["processes"][0]["used"]["bytes"], "figures again")

    assert [p["pid"] for p in shared["processes"]] == [holder.pid]
    assert shared["processes"][0]["used"]["bytes"] == before["processes"][0]["used"]["bytes"]
    assert str(host_bytes) not in json.dumps(shared["devices"])
    assert blind["processes"] == []
    assert blind["devices"][0]["unattributed"]["bytes"] is None
    assert blind["devices"][0]["merged"]["bytes"] == before["devices"][0]["used"]["bytes"]
    assert "not known: no permission" in blind_screen
    assert [p["pid"] for p in partial["processes"]] == [holder.pid]
    assert partial["devices"][0]["processes_reason"] == "no permission"
    assert partial["devices"][0]["unattributed"]["bytes"] is None
    assert partial["devices"][0]["merged"]["of"] == ["processes that are not listed", "unattributed"]
    assert "graphics processes — no permission" in partial_screen
    assert [p["pid"] for p in bare["processes"]] == [holder.pid]
    assert bare["devices"][0]["merged"]["bytes"] == before["devices"][0]["used"]["bytes"]
    assert mute["devices"][0]["load"]["utilization_percent"] is None
    assert figures(mute["devices"][0]) == figures(before["devices"][0])
    assert old["devices"][0]["used"]["detail"] == "includes driver-reserved"
    assert old["devices"][0]["free"]["bytes"] == before["devices"][0]["free"]["bytes"]
    assert after["processes"][0]["used"]["bytes"] == before["processes"][0]["used"]["bytes"]


def test_a_call_that_hangs_turns_the_figures_stale_and_the_view_stays_alive(simcard, watch):
    watching = watch()
    watching.healthy()
    simcard.fault(nvml_delay_ms=3000)
    began_s = time.monotonic()
    stale = watching.until(lambda p: p["devices"][0]["total"]["reason"] == "stale", "stale")
    pictures = 0
    while time.monotonic() < began_s + 2.5:
        watching.until(lambda _: True, "a picture")
        pictures += 1
    simcard.fault(nvml_delay_ms=0)
    watching.healthy()

    assert "a driver call has not returned for" in stale["devices"][0]["reason"]
    assert pictures >= 3


@pytest.mark.parametrize(
    ("error", "reason", "word"),
    [
        ("DRIVER_NOT_LOADED", "no driver", "Driver Not Loaded"),
        (
            "LIB_RM_VERSION_MISMATCH",
            "driver and library versions differ",
            "RM has detected an NVML/RM version mismatch.",
        ),
    ],
)
def test_a_driver_that_cannot_be_opened_is_one_line_and_code_2_and_json_has_it_too(
    gpumem, simcard, error, reason, word
):
    simcard.fault(nvml_init_error=error)
    env = simcard.machine.monitor_environment()
    text = gpumem("top", "--once", env=env, exits=2)
    read = json.loads(gpumem("top", "--json", env=env, exits=2).stdout)

    assert text.stdout == b""
    assert text.stderr.decode().startswith(f"gpumem-tui: no card: {reason}")
    assert text.stderr.count(b"\n") == 1
    assert read["driver"]["reason"] == reason
    assert read["driver"]["word"] == word
    assert (read["devices"], read["processes"]) == ([], [])


def test_a_driver_that_goes_away_under_the_view_leaves_reasons_and_comes_back(simcard, watch):
    watching = watch()
    watching.healthy()
    simcard.fault(nvml_init_error="LIB_RM_VERSION_MISMATCH", nvml_error="UNKNOWN")
    gone = watching.until(
        lambda p: p["devices"][0]["total"]["reason"] == "driver and library versions differ", "mismatch"
    )
    simcard.fault(nvml_init_error=0, nvml_error=0)
    watching.healthy()

    assert set(figures(gone["devices"][1]).values()) == {None}


def test_memory_of_a_process_that_nobody_lists_is_called_nobodys(simcard, watch):
    hidden = simcard.hold("3GiB", device=0)
    watching = watch()
    watching.healthy()
    simcard.fault(nvml_hide_pid=hidden.pid)
    picture = watching.until(lambda p: not p["processes"], "hidden")
    context = int(simcard.status().settings["context_bytes"])

    assert picture["devices"][0]["unattributed"]["bytes"] == 3 * GIB + context
    assert picture["devices"][0]["file_holders"] == []
    held = f"{3 + context / GIB:.2f} GiB"
    assert f"GPU 0: {held} used by nobody listed; no process that we may look at" in watching.screen


def test_processes_of_another_pid_namespace_are_kept_as_rows(simcard, watch):
    holder = simcard.hold("1GiB", device=1)
    simcard.fault(nvml_process_list=2)
    watching = watch()
    picture = watching.until(lambda p: p["processes"], "a row")
    (row,) = picture["processes"]

    assert (row["pid"], row["visible"], row["user"], row["host_bytes"]) == (
        10_000_000 + holder.pid,
        False,
        None,
        None,
    )
    assert row["used"]["bytes"] > GIB
    assert "another container/namespace" in watching.screen


def test_a_process_is_described_by_what_proc_tells(simcard, watch):
    began = time.time_ns()
    holder = simcard.hold("1GiB", device=1, name="neighbour")
    (row,) = watch().until(lambda p: p["processes"], "a row")["processes"]

    assert (row["pid"], row["name"], row["visible"], row["zombie"]) == (holder.pid, "neighbour", True, False)
    assert row["command"].startswith("neighbour 1 ")
    assert row["host_bytes"] > 0
    assert abs(row["started_wall_ns"] - began) < 60 * 10**9
    assert row["growth"] == {"bytes": None, "reason": "not read yet"}


@pytest.mark.simcard(devices=["24GiB"], mig=2)
def test_mig_instances_are_cards_of_their_own_and_a_process_is_on_its_instance(simcard, watch):
    simcard.hold("1GiB", device=0)
    picture = watch().until(lambda p: len(p["devices"]) == 3 and p["complete"], "three devices")

    assert [d["label"] for d in picture["devices"]] == ["0", "0:0", "0:1"]
    assert [d["total"]["bytes"] for d in picture["devices"]] == [24 * GIB, 12 * GIB, 12 * GIB]
    assert [d["split"] for d in picture["devices"]] == [True, False, False]
    assert all(d["uuid"].startswith("MIG-") for d in picture["devices"][1:])
    assert len(picture["processes"]) == 1


@pytest.mark.simcard(devices=["2GiB"] * 16)
def test_sixteen_cards_and_two_hundred_processes_stay_on_a_small_screen(gpumem, simcard):
    simcard.fault(context_bytes=0)
    for number in range(200):
        simcard.hold("8MiB", device=number % 16)
    env = {**gpumem.environment, **simcard.machine.monitor_environment()}
    view = Terminal([*COMMAND, "top"], env, gpumem.folder)
    shown = view.wait_for("200 processes by memory")
    view.press("q")
    code = view.wait_for_end()

    assert code == 0
    assert "16 cards" in shown
    assert "more: ↓" in shown
    assert " 15 " in shown


CUDA_ORDER = """
    import os, torch
    torch.empty(1 << 28, device="cuda:0")  # what CUDA calls 0 is NVML's 1
    print(torch.cuda.get_device_properties(0).uuid, os.getpid(), flush=True)
    input()
"""


def test_a_rank_is_on_the_card_that_it_uses_whatever_cuda_calls_it(gpumem, simcard, watch):
    workload = simcard.start_python(CUDA_ORDER, visible="1,0")
    uuid, pid = workload.stdout.readline().split()
    picture = watch().until(lambda p: p["processes"], "a row")

    assert [(p["device"], p["pid"]) for p in picture["processes"]] == [(1, int(pid))]
    assert picture["devices"][1]["uuid"] == uuid


def test_looking_creates_no_context_and_changes_no_setting(gpumem, simcard):
    before = (simcard.status().settings, simcard.device(0).used_bytes, simcard.device(1).used_bytes)
    gpumem("top", "--once", env=simcard.machine.monitor_environment())

    assert (simcard.status().settings, simcard.device(0).used_bytes, simcard.device(1).used_bytes) == before
    assert simcard.device(0).processes == ()


def test_a_driver_that_takes_seconds_to_be_opened_is_waited_for(gpumem, simcard):
    simcard.hold("1GiB", device=1)
    simcard.fault(nvml_delay_ms=6000)  # of the first call; then it is loaded
    process = gpumem.start("top", "--json", env=simcard.machine.monitor_environment())
    time.sleep(2)
    simcard.fault(nvml_delay_ms=0)
    read = json.loads(process.communicate(timeout=60)[0])

    assert process.returncode == 0
    assert (read["complete"], len(read["devices"]), len(read["processes"])) == (True, 2, 1)


def test_a_driver_that_hangs_from_the_start_is_told_and_holds_nobody_up(gpumem, simcard):
    simcard.fault(nvml_delay_ms=60_000)
    began_s = time.monotonic()
    done = gpumem("top", "--json", env=simcard.machine.monitor_environment(), exits=2)
    read = json.loads(done.stdout)

    assert time.monotonic() - began_s < 30
    assert (read["driver"]["reason"], read["devices"]) == ("stale", [])
    assert done.stderr == b""

"""The driver's stream on the simulated card: each fault of NVML while it runs, and its end."""

import itertools
import json
import subprocess
import sys
import threading
import time

import pytest

from gpumem_tui.agent import wire

pytestmark = pytest.mark.slow

WATCH = """
import sys, time
from pathlib import Path
import msgspec
from gpumem_tui.sources.driver import Driver

driver = Driver(Path(sys.argv[1]), hertz=20, retry_s=0.5, stale_s=0.6)
while True:
    for record in driver.poll(0.05):
        sys.stdout.buffer.write(msgspec.json.encode(record) + b"\\n")
    sys.stdout.buffer.flush()
    time.sleep(max(0, min(0.05, (driver.due_ns() - time.monotonic_ns()) / 1e9)))
"""

DIRECT = """
import pynvml
pynvml.nvmlInit()
memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(1), pynvml.nvmlMemory_v2)
print(memory.total, memory.free, memory.reserved)
"""

LONG_S = 20
"""Longer than any of it takes, also on a loaded machine."""


class Watch:
    """A process that reads a simulated machine's driver; its records as dicts, as they come."""

    def __init__(self, card):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WATCH, str(card.libraries.nvml)],
            env=card.machine.monitor_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.records = []
        self._news = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            kind, *values = json.loads(line)
            record = {"kind": kind, **dict(zip(wire.FIELDS[kind], values, strict=False))}
            with self._news:
                self.records.append(record)
                self._news.notify_all()

    def next(self, kind, **fields):
        """The first record that is read from now on and has these fields; a callable is a condition."""
        start = len(self.records)

        def fits(record):
            return record["kind"] == kind and all(
                value(record[name]) if callable(value) else record[name] == value
                for name, value in fields.items()
            )

        with self._news:
            found = self._news.wait_for(
                lambda: next((r for r in self.records[start:] if fits(r)), None), timeout=LONG_S
            )
        assert found, f"no {kind} with {fields}; the last were {self.records[-5:]}"
        return found


@pytest.fixture
def watch(simcard):
    started = []

    def start(card=simcard):
        started.append(Watch(card))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        said = each.process.stderr.read()
        each.process.wait()
        each.reader.join()
        each.process.stdout.close()
        each.process.stderr.close()
        assert said == ""  # never a traceback, never a word on stderr


def is_word(start):
    return lambda reason: reason is not None and reason.startswith(start)


@pytest.mark.simcard(devices=["24GiB", "8GiB"])
def test_memory_is_what_pynvml_says_when_called_directly(simcard, watch):
    simcard.hold("6GiB", device=1)
    direct = subprocess.run(
        [sys.executable, "-c", DIRECT],
        env=simcard.machine.monitor_environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    seen = watch().next("memory", index=1)
    total, free, reserved = map(int, direct)

    assert (seen["total_bytes"], seen["free_bytes"], seen["driver_reserved_bytes"]) == (total, free, reserved)
    assert seen["used_bytes"] == simcard.device(1).used_bytes
    assert seen["version"] == 2
    assert 0 <= seen["took_ns"] < seen["t_ns"]


@pytest.mark.simcard(devices=["24GiB", "8GiB"])
def test_identity_is_normalised(simcard, watch):
    seen = watch().next("gpu", index=1, total_bytes=8 << 30)

    assert seen["uuid"] == simcard.device(1).uuid.removeprefix("GPU-")
    assert seen["pci"] == "00000000:12:00.0"
    assert seen["driver_version"] == "580.00.00"
    assert (seen["parent"], seen["reason"]) == (None, None)


def test_processes_are_listed_with_what_each_holds(simcard, watch):
    holders = {simcard.hold(size).pid: size for size in (1 << 30, 2 << 30)}

    seen = watch().next("processes", rows=lambda rows: len(rows) == 2)

    context = int(simcard.status().settings["context_bytes"])
    assert {row[0]: row[1] - context for row in seen["rows"]} == holders
    assert all(row[2:] == ["C", None] for row in seen["rows"])


def test_two_hundred_processes_are_all_parsed(simcard, watch):
    pids = {simcard.hold("8MiB").pid for _ in range(40)}
    simcard.fault(context_bytes=0)
    pids |= {simcard.hold("8MiB").pid for _ in range(160)}

    seen = watch().next("processes", rows=lambda rows: len(rows) == 200)

    assert {row[0] for row in seen["rows"]} == pids


@pytest.mark.simcard(devices=["2GiB"] * 16)
def test_sixteen_devices_are_all_read(simcard, watch):
    watching = watch()
    for index in range(16):
        watching.next("memory", index=index, reason=None)

    assert {r["index"] for r in watching.records if r["kind"] == "gpu"} == set(range(16))


@pytest.mark.simcard(devices=["24GiB", "8GiB"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("GPU_IS_LOST", "lost: GPU is lost"),
        ("RESET_REQUIRED", "lost"),
        ("NO_PERMISSION", "no permission"),
        ("NOT_SUPPORTED", "not supported"),
        ("UNKNOWN", "failed: Unknown Error"),
        ("TIMEOUT", "failed: Timeout"),
    ],
)
def test_a_fault_of_one_device_is_its_own_and_ends_with_it(simcard, watch, error, reason):
    watching = watch()
    watching.next("memory", index=0, reason=None)
    simcard.fault(nvml_error=error, nvml_error_device=0)
    faulty = watching.next("memory", index=0, reason=is_word(reason))
    well = watching.next("memory", index=1)
    simcard.fault(nvml_error=0)
    again = watching.next("memory", index=0, reason=None)

    assert faulty["free_bytes"] is None and faulty["used_bytes"] is None
    assert well["reason"] is None
    assert again["total_bytes"] == 24 << 30
    assert {r["index"] for r in watching.records if r["kind"] == "gpu"} == {0, 1}


def test_faults_are_told_once_and_so_is_their_end(simcard, watch):
    watching = watch()
    watching.next("memory", reason=None)
    simcard.fault(nvml_memory_error="NO_PERMISSION")
    watching.next("word", code="device-fault")
    for _ in range(5):
        watching.next("memory", reason=is_word("no permission"))
    simcard.fault(nvml_memory_error=0)
    watching.next("word", code="device-recovered")

    words = [r["text"] for r in watching.records if r["kind"] == "word"]
    assert words == [
        "GPU 0: memory: no permission: Insufficient Permissions",
        "GPU 0: memory can be read again",
    ]


def test_a_fault_of_the_process_list_leaves_memory_and_load_alone(simcard, watch):
    simcard.fault(nvml_process_error="NO_PERMISSION")
    watching = watch()

    assert watching.next("processes")["reason"].startswith("no permission")
    assert watching.next("memory")["reason"] is None
    assert watching.next("load")["reason"] is None


def test_telemetry_that_is_not_supported_leaves_memory_alone(simcard, watch):
    simcard.fault(nvml_telemetry_error="NOT_SUPPORTED")
    watching = watch()
    load = watching.next("load")

    assert load["reason"] == "not supported"
    assert (load["utilization"], load["temperature"], load["power_mw"]) == (None, None, None)
    assert watching.next("memory")["reason"] is None


def test_a_driver_without_version_2_is_read_by_version_1(simcard, watch):
    simcard.fault(nvml_memory_v2_error="FUNCTION_NOT_FOUND")
    simcard.hold("1GiB")
    seen = watch().next("memory", version=1)
    card = simcard.device()

    assert seen["driver_reserved_bytes"] is None
    assert seen["used_bytes"] == card.used_bytes + card.reserved_bytes
    assert seen["total_bytes"] == seen["free_bytes"] + seen["used_bytes"]


def test_a_process_without_a_figure_has_a_reason_and_no_zero(simcard, watch):
    simcard.fault(nvml_process_memory=0)
    holder = simcard.hold("1GiB")
    seen = watch().next("processes", rows=lambda rows: len(rows) == 1)

    assert seen["rows"] == [[holder.pid, None, "C", "not supported"]]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("DRIVER_NOT_LOADED", "no driver: Driver Not Loaded"),
        ("LIB_RM_VERSION_MISMATCH", "driver and library versions differ"),
    ],
)
def test_a_driver_that_cannot_be_opened_is_opened_once_it_can(simcard, watch, error, reason):
    simcard.fault(nvml_init_error=error)
    watching = watch()
    word = watching.next("word", code="no-driver")
    simcard.fault(nvml_init_error=0)
    watching.next("word", code="driver-open")
    watching.next("memory", reason=None)

    assert reason in word["text"]


@pytest.mark.simcard(devices=["24GiB"], mig=2)
def test_mig_instances_are_devices_of_their_own(simcard, watch):
    watching = watch()
    second = watching.next("gpu", index=101, total_bytes=lambda size: size is not None)
    memory = watching.next("memory", index=101)

    assert second["parent"] == 0
    assert second["uuid"].startswith("MIG-")
    assert second["pci"] == "00000000:11:00.0"
    assert memory["total_bytes"] == 12 << 30
    assert {r["index"] for r in watching.records if r["kind"] == "gpu"} == {0, 100, 101}


@pytest.mark.simcard(devices=["24GiB", "8GiB"])
def test_a_call_that_hangs_turns_readings_stale_and_then_comes_back(simcard, watch):
    watching = watch()
    watching.next("memory", index=0, reason=None)
    simcard.fault(nvml_delay_ms=2000)
    stale = watching.next("memory", index=0, reason=is_word("stale"))
    watching.next("processes", index=1, reason=is_word("stale"))
    simcard.fault(nvml_delay_ms=0)
    again = watching.next("memory", index=0, reason=None)

    assert "a driver call has not returned for" in stale["reason"]
    assert stale["free_bytes"] is None
    assert again["total_bytes"] == 24 << 30


def test_slow_calls_are_made_less_often(simcard, watch):
    simcard.fault(nvml_delay_ms=30)
    watching = watch()
    watching.next("memory", reason=None)
    until = time.monotonic() + 3
    seen = []
    while time.monotonic() < until:
        seen.append(watching.next("memory", reason=None)["t_ns"])

    gaps = [later - earlier for earlier, later in itertools.pairwise(seen)]
    assert len(seen) < 12  # at 20 Hz and 30 ms a call it would be near 60
    assert gaps[-1] > 2 * gaps[0] or gaps[0] > 500_000_000

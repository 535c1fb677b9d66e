"""The driver's stream over a library of the test's own: order, isolation, hanging, opening anew."""

import threading
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.records import Gpu, Load, Memory, Processes, Reason, Word
from gpumem_tui.sources import probe as probing
from gpumem_tui.sources.driver import Driver
from gpumem_tui.sources.faults import Fault, parse_fault
from gpumem_tui.sources.nvml import (
    Found,
    LoadReading,
    MemoryReading,
    Nvml,
    ProcessReading,
    merge_processes,
    normalise_pci,
)
from gpumem_tui.sources.pace import LONGEST_NS, Pace
from gpumem_tui.sources.probe import probe

GIB = 1 << 30


class FakeLibrary:
    """NVML as a test wants it: cards by UUID, faults by UUID, a gate that calls wait at."""

    def __init__(self, *uuids):
        self.uuids = list(uuids)
        self.faults = {}
        self.opened = 0
        self.open_fault = None
        self.gates = {}

    def open(self):
        self.opened += 1
        if self.open_fault:
            raise self.open_fault
        return "1.0"

    def close(self):
        pass

    def devices(self):
        return [Found(index, uuid, uuid=uuid) for index, uuid in enumerate(self.uuids)]

    def _enter(self, handle):
        if handle in self.gates:
            self.gates[handle].wait()
        if handle in self.faults:
            raise self.faults[handle]

    def memory(self, handle, version=2):
        self._enter(handle)
        return MemoryReading(8 * GIB, 5 * GIB, GIB, 2)

    def processes(self, handle):
        self._enter(handle)
        return ProcessReading([(7, GIB, "C", None)], None)

    def load(self, handle):
        self._enter(handle)
        return LoadReading(50, 40, None, Fault(Reason.NOT_SUPPORTED))


@pytest.fixture
def read():
    drivers = []

    def make(library, **options):
        driver = Driver(nvml=library, **({"hertz": 200, "retry_s": 0.05} | options))
        drivers.append(driver)

        def until(kind, **fields):
            limit = time.monotonic() + 20
            while time.monotonic() < limit:
                for record in driver.poll(0.01):
                    if isinstance(record, kind) and all(getattr(record, k) == v for k, v in fields.items()):
                        return record
            raise AssertionError(f"no {kind.__name__} with {fields}")

        return until

    yield make
    for driver in drivers:
        driver.close()


def test_used_excludes_what_the_driver_reserves(read):
    memory = read(FakeLibrary("a"))(Memory)

    assert (memory.total_bytes, memory.free_bytes) == (8 * GIB, 5 * GIB)
    assert (memory.used_bytes, memory.driver_reserved_bytes) == (2 * GIB, GIB)


def test_a_load_that_is_known_in_part_has_both_figures_and_the_reason(read):
    load = read(FakeLibrary("a"))(Load)

    assert (load.utilization, load.power_mw, load.reason) == (50, None, "not supported")


def test_a_hanging_device_does_not_hold_up_another(read):
    library = FakeLibrary("a", "b")
    library.gates["a"] = threading.Event()
    until = read(library, stale_s=0.1)
    healthy = until(Memory, index=1)
    hanging = until(Memory, index=0)
    still_healthy = until(Memory, index=1)
    library.gates.pop("a").set()
    recovered = until(Memory, index=0, reason=None)

    assert healthy.reason is None and still_healthy.reason is None
    assert parse_fault(hanging.reason).reason is Reason.STALE
    assert recovered.free_bytes == 5 * GIB


def test_opening_that_hangs_is_said_and_does_not_hold_up_the_loop(read):
    library = FakeLibrary("a")
    gate = threading.Event()
    library.open = lambda: gate.wait() and "1.0"
    until = read(library, stale_s=0.05)
    word = until(Word, code="no-driver")
    gate.set()

    assert word.text == "the driver does not answer: stale: a driver call has not returned"
    assert until(Memory).reason is None


def test_version_2_of_the_memory_call_is_asked_for_again_after_a_while(read):
    library = FakeLibrary("a")
    library.newest = 1
    library.asked = []

    def memory(handle, version=2):
        library.asked.append(version)
        return MemoryReading(8 * GIB, 5 * GIB, GIB if library.newest == 2 else None, library.newest)

    library.memory = memory
    until = read(library, retry_s=0.2)
    old = [until(Memory) for _ in range(5)]
    library.newest = 2
    new = until(Memory, version=2)

    assert {(m.version, m.driver_reserved_bytes) for m in old} == {(1, None)}
    assert (new.driver_reserved_bytes, library.asked[:2]) == (GIB, [2, 1])


def test_a_lost_device_has_the_driver_opened_anew_and_keeps_its_index(read):
    library = FakeLibrary("a", "b")
    until = read(library)
    until(Memory, index=1)
    library.faults["a"] = Fault(Reason.LOST, "GPU is lost", 15)
    until(Memory, index=0, reason="lost: GPU is lost")
    library.uuids = ["b"]  # the driver no longer names the lost one; the other moves up
    gone = until(Gpu, index=0, reason="lost: the driver no longer names it")
    other = until(Memory, index=1)
    library.uuids, library.faults = ["a", "b"], {}
    back = until(Gpu, index=0, reason=None)
    until(Memory, index=0, reason=None)

    assert library.opened > 1
    assert gone.uuid == back.uuid == "a"
    assert other.reason is None


def test_a_device_that_was_refused_is_asked_for_again_while_the_driver_stays_open(read):
    library = FakeLibrary("a", "b")
    named, refused = library.devices, Fault(Reason.NO_PERMISSION, "Insufficient Permissions", 4)
    library.devices = lambda: [Found(0, None, fault=refused), *named()[1:]]
    until = read(library)
    missing = until(Memory, index=0)
    other = until(Memory, index=1)
    library.devices = named
    told = until(Gpu, index=0, reason=None)

    assert parse_fault(missing.reason).reason is Reason.NO_PERMISSION
    assert other.reason is None
    assert until(Memory, index=0, reason=None).free_bytes == 5 * GIB
    assert (told.uuid, library.opened) == ("a", 1)


def test_what_a_device_is_is_told_once_however_often_it_is_asked_for():
    library = FakeLibrary("a")
    library.faults["a"] = Fault(Reason.LOST, "GPU is lost", 15)
    driver = Driver(nvml=library, hertz=200, retry_s=0.01)
    records = []
    while library.opened < 5:
        records += driver.poll(0.01)
    driver.close()

    assert len([record for record in records if isinstance(record, Gpu)]) == 1


def test_two_devices_of_one_uuid_are_two_also_when_asked_for_again(read):
    library = FakeLibrary("a", "a", "b")
    until = read(library)
    for index in range(3):
        until(Memory, index=index, reason=None)
    library.faults["b"] = Fault(Reason.LOST, "GPU is lost", 15)
    while library.opened < 3:
        until(Memory, index=2)
    library.faults.clear()

    assert [until(Memory, index=index, reason=None).index for index in range(3)] == [0, 1, 2]


def test_a_driver_that_hangs_at_the_end_holds_nobody_up():
    library, gate = FakeLibrary("a"), threading.Event()
    library.close = gate.wait
    driver = Driver(nvml=library)
    while not any(isinstance(record, Memory) for record in driver.poll(0.05)):
        pass
    while driver.poll(0.2):
        pass
    began_s = time.monotonic()
    driver.close()
    took_s = time.monotonic() - began_s
    gate.set()

    assert 0.5 < took_s < 10


def test_a_driver_that_goes_away_leaves_each_device_with_the_reason(read):
    library = FakeLibrary("a")
    until = read(library)
    until(Memory, reason=None)
    library.faults["a"] = Fault(Reason.FAILED, "Unknown Error", 999)
    library.open_fault = Fault(Reason.NO_DRIVER, "Driver Not Loaded", 9)
    whole = until(Gpu, index=-1)
    missing = until(Memory, reason="no driver: Driver Not Loaded")
    library.open_fault, library.faults = None, {}

    assert whole.reason == "no driver: Driver Not Loaded"
    assert missing.used_bytes is None
    assert until(Memory, reason=None).used_bytes == 2 * GIB


def test_a_bug_in_one_call_ends_neither_the_thread_nor_the_others(read, monkeypatch):
    library = FakeLibrary("a")
    library.faults["a"] = ZeroDivisionError()
    said = []

    def note(arguments):
        said.append(arguments.exc_type)
        library.faults.clear()

    monkeypatch.setattr(threading, "excepthook", note)
    until = read(library)

    assert until(Processes).rows == [(7, GIB, "C", None)]
    assert said == [ZeroDivisionError]


@given(st.lists(st.integers(0, 100_000_000), max_size=60))
def test_a_pace_stays_between_its_base_and_the_longest(durations):
    pace = Pace(500_000_000, 0)
    for took_ns in durations:
        pace.learn(took_ns)

        assert 500_000_000 <= pace.period_ns <= LONGEST_NS


def test_a_pace_does_not_drift_when_it_is_late():
    pace = Pace(100, 0)
    pace.advance(250)

    assert pace.due_ns == 300


def test_a_slow_call_halves_its_rate_and_a_quick_one_gets_it_back():
    pace = Pace(500_000_000, 0)
    pace.learn(21_000_000)
    slowed_ns = pace.period_ns
    pace.learn(1_000_000)

    assert (slowed_ns, pace.period_ns) == (1_000_000_000, 500_000_000)


def entry(pid, used, instance=None):
    return SimpleNamespace(pid=pid, usedGpuMemory=used, gpuInstanceId=instance, computeInstanceId=instance)


@pytest.mark.parametrize("nonsense", [2**64 - 1, 2**63])
def test_an_answer_without_a_value_is_no_figure(nonsense):
    nvml = Nvml()
    nvml._module = SimpleNamespace(
        NVMLError=OSError,
        nvmlMemory_v2=2,
        nvmlDeviceGetMemoryInfo=lambda *_: SimpleNamespace(total=24 * GIB, free=nonsense, reserved=0),
    )
    with pytest.raises(Fault) as fault:
        nvml.memory(object())

    assert fault.value.reason is Reason.NOT_SUPPORTED
    assert merge_processes([("C", [entry(7, nonsense)])]) == [(7, None, "C", "not supported")]


def test_a_process_of_two_kinds_is_counted_once():
    rows = merge_processes([("C", [entry(7, 100)]), ("G", [entry(7, 100), entry(8, 5)])])

    assert rows == [(7, 100, "CG", None), (8, 5, "G", None)]


def test_a_process_on_two_instances_holds_the_sum():
    assert merge_processes([("C", [entry(7, 100, 1), entry(7, 20, 2)])]) == [(7, 120, "C", None)]


def test_a_sum_with_an_unknown_part_is_unknown():
    rows = merge_processes([("C", [entry(7, 100, 1), entry(7, None, 2)])])

    assert rows == [(7, None, "C", "not supported")]


@pytest.mark.parametrize("bus_id", ["00000000:3B:00.0", "0000:3B:00.0", "0000:3b:00.0 "])
def test_a_pci_bus_id_has_one_form(bus_id):
    assert normalise_pci(bus_id) == "00000000:3b:00.0"


@pytest.mark.parametrize("reason", list(Reason))
def test_a_fault_survives_its_text(reason):
    fault = parse_fault(Fault(reason, "the driver: its word").text)

    assert (fault.reason, fault.word) == (reason, "the driver: its word")


def test_a_text_of_a_later_version_is_kept_as_a_word():
    assert (parse_fault("on fire").reason, parse_fault("on fire").word) == (Reason.UNKNOWN, "on fire")


def test_a_machine_without_anything_has_no_gpu_and_one_line_why(tmp_path):
    answer = probe(tmp_path / "libnvidia-ml.so.1", tmp_path)

    assert (answer.present, answer.devices) == (False, None)
    assert answer.line.startswith("no GPU: NVML: ")
    assert "\n" not in answer.line


def test_a_driver_that_does_not_answer_is_there_and_holds_nobody_up(tmp_path, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(probing, "_count", lambda _: gate.wait())
    answer = probe(None, tmp_path, deadline_s=0.2)
    gate.set()

    assert (answer.present, answer.devices) == (True, None)
    assert "has not answered" in answer.line


def test_a_device_node_alone_counts_as_a_gpu(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    answer = probe(tmp_path / "libnvidia-ml.so.1", tmp_path)

    assert answer.present
    assert answer.line.startswith("/dev/kfd is there (AMD), but NVML: ")

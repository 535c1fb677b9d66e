"""Failures of a recording as its journals tell them: what became of each, and who took whom along."""

import json
import signal
from pathlib import Path

import pytest

from gpumem_tui import records
from gpumem_tui.agent import ring, wire
from gpumem_tui.analysis.failurestate import Outcome, Part
from gpumem_tui.analysis.findings import Verdict
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.records import Reason
from gpumem_tui.session import Recording
from gpumem_tui.session.course import RankCourse
from gpumem_tui.session.driver import DriverModel
from gpumem_tui.session.echoes import Failed
from gpumem_tui.session.failures import Context, FailureBook
from gpumem_tui.session.kept import kept_since
from gpumem_tui.session.rank import RankModel
from gpumem_tui.session.recognition import Recognition
from gpumem_tui.units import GIB, MIB

SECOND = 10**9
START = 10**12


class Written:
    """A recording written line by line."""

    def __init__(self, folder):
        self.run = RunDirectory(folder)
        for each in (self.run.journal, self.run.rings, self.run.failures):
            each.mkdir()
        self.run.write_facts(
            RunFile(
                run="r", command=["x"], cwd="/", host="h", user="u", boot="other", wall_ns=START, t_ns=START,
                version="0", interactive=False, keeper_pid=1, keeper_ticks=1,
            )
        )  # fmt: skip
        self.lines = {}
        self.seq = 0
        self.rings = {}

    def rank(self, number, *lines):
        pid = 100 + number
        told = self.lines.setdefault(("rank", pid), [("rank", START, number, number, 2, 2, "environment")])
        told += lines

    def span(self, number, phase, since, until=None, error=None, step=1):
        """Edges of a span, in seconds after the start."""
        self.seq += 2
        span = self.seq
        at = (START + round(since * SECOND), self.seq, span, None, 1, phase, "N", step, [])
        self.rank(number, ("begin", *at))
        if until is not None:
            self.rank(number, ("end", START + round(until * SECOND), self.seq + 1, span, error, []))

    def failure(self, number, second, **more):
        """A failing allocation with its record."""
        t_ns, path = START + round(second * SECOND), f"failures/{number}-{second}.json"
        facts = {"t_ns": t_ns, "kind": "out of memory", "pid": 100 + number, "ordinal": 0} | more
        (self.run.path / path).write_text(json.dumps(facts))
        self.rank(number, ("failure", t_ns, 0, GIB, "forward", 1, path))
        return path

    def exception(self, number, second, kind, error, text, path=None, thread=None):
        t_ns = START + round(second * SECOND)
        self.rank(number, ("exception", t_ns, kind, error, text, "forward", 1, path, thread))

    def last_word(self, number, word):
        """How a rank was about to end, in its ring."""
        pid = 100 + number
        self.rings[pid] = f"{pid}-1.0000.ring"
        ring.Ring(str(self.run.rings / self.rings[pid]), pid, 1).say(word)

    def driver(self, *lines):
        self.lines.setdefault(("driver", None), []).extend(lines)

    def ended(self, second, code=None, signal=None, pid=99):
        t_ns = START + round(second * SECOND)
        told = [("start", START, pid, 1), ("exit", t_ns, code, signal)]
        self.lines[("keeper", 99)] = told

    def failures(self):
        """Of the recording, as it stands."""
        for (role, pid), lines in self.lines.items():
            path = self.run.journal / wire.segment_name(role, 0, pid, 1)
            more = {"ring": self.rings[pid]} if pid in self.rings else {}
            head = wire.header(role, "r", 0, pid=pid or 0, started_ticks=1, t_ns=START, **more)
            told = [wire.encode_header(head), *(wire.encode(*line) for line in lines)]
            path.write_bytes(b"".join(told))
        return Recording(self.run).read().failures


@pytest.fixture
def written(tmp_path):
    return Written(tmp_path)


def test_a_program_that_computes_on_has_caught_it(written):
    written.failure(0, 1.0)
    written.span(0, "forward", 0.9, 1.1, "OutOfMemoryError")
    written.span(0, "forward", 1.2, 1.3)
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert failure.outcome is Outcome.CAUGHT


def test_edges_that_are_written_after_the_failure_and_older_than_it_say_nothing(written):
    written.failure(0, 1.0)
    written.span(0, "forward", 0.9, 1.1, "OutOfMemoryError", step=7)
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert (failure.outcome, failure.part) == (Outcome.LEFT, Part.FIRST)


def test_a_program_that_ends_itself_where_it_handles_the_failure_has_caught_it(written):
    written.failure(0, 1.0)
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=3)
    (failure,) = written.failures()

    assert (failure.outcome, failure.part) == (Outcome.LEFT, Part.FIRST)
    assert failure.outcome.value == "caught; the program ended after it"


def test_a_program_that_ends_itself_minutes_later_has_gone_on(written):
    written.failure(0, 1.0)
    written.rank(0, ("bye", START + 90 * SECOND))
    written.ended(90, code=3)
    (failure,) = written.failures()

    assert failure.outcome is Outcome.CAUGHT


@pytest.mark.parametrize(
    ("phase", "live_after", "kept"),
    [("forward", 6 * GIB, 4 * GIB), ("forward", 2 * GIB, None), ("optimizer", 6 * GIB, None)],
)
def test_what_a_caught_attempt_had_made_is_what_was_live_ever_since(phase, live_after, kept):
    model, course, who = RankModel(100, 1), RankCourse(), (100, 1)
    for record in (
        records.Begin(START, 1, 1, None, 1, phase, "N", 1, [(0, 2 * GIB, 8 * GIB)]),
        records.Sample(START + 2 * SECOND, 0, live_after, 8 * GIB),
        records.Sample(START + 3 * SECOND, 0, 7 * GIB, 8 * GIB),
        records.End(START + 3 * SECOND, 2, 1, "OutOfMemoryError", []),
    ):
        model.take(record)
        course.take(record)
    first, second = (
        Failed(records.Failure(START + at * SECOND, 0, GIB, phase, 1, None), who) for at in (1, 4)
    )
    found = kept_since(second, [first, second], course, model, 0)

    assert (found.kept.low_bytes if found is not None else None) == kept


@pytest.mark.parametrize(
    ("word", "code", "became"),
    [
        (None, 3, Outcome.QUIT),  # no exception ends the interpreter with that code
        (None, 1, Outcome.GONE),
        (None, 120, Outcome.GONE),
        (ring.RUNNING, 1, Outcome.QUIT),
        (ring.RUNNING, None, Outcome.GONE),
        (ring.ENDING, 1, Outcome.LEFT),
        (ring.RAISED_MEMORY, 1, Outcome.ENDED),
        (ring.RAISED, 1, Outcome.CAUGHT),
    ],
)
def test_a_process_that_left_no_last_line_is_told_by_its_exit_code_and_its_ring(written, word, code, became):
    written.failure(0, 1.0)
    if word is not None:
        written.last_word(0, word)
    written.ended(1.1, code=code if code is not None else 1, pid=100 if code is not None else 99)
    failure = next(f for f in written.failures() if f.kind == "out of memory")

    assert (failure.outcome, failure.exit_code) == (became, code)


def test_of_failures_that_were_all_caught_the_last_one_is_the_end(written):
    written.failure(0, 1.0)
    written.failure(0, 1.1)
    written.ended(1.2, code=3, pid=100)

    assert [(f.t_ns - START, f.outcome) for f in written.failures()] == [
        (round(1.1 * SECOND), Outcome.QUIT),
        (SECOND, Outcome.CAUGHT),
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_that_somebody_sent_is_the_end_and_not_the_failure_that_was_caught_before(written, number):
    written.failure(0, 1.0)
    written.ended(9, signal=number, pid=100)
    killed, caught = written.failures()

    assert (killed.part, killed.findings[0].verdict) == (Part.FIRST, Verdict.UNKNOWN)
    assert (caught.kind, caught.outcome) == ("out of memory", Outcome.OPEN)


def test_a_program_that_aborts_by_its_failure_was_ended_by_it(written):
    written.failure(0, 1.0)
    written.ended(1.1, signal=signal.SIGABRT, pid=100)
    (failure,) = written.failures()

    assert (failure.outcome, failure.part) == (Outcome.ENDED, Part.FIRST)


def test_of_several_failures_of_one_process_only_the_one_that_was_not_caught_ended_it(written):
    written.failure(0, 1.0)
    path = written.failure(0, 1.1)
    written.exception(0, 1.2, "out of memory", "OutOfMemoryError", "CUDA out of memory. …", path)
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)

    assert [(f.t_ns - START, f.outcome) for f in written.failures()] == [
        (round(1.1 * SECOND), Outcome.ENDED),
        (SECOND, Outcome.CAUGHT),
    ]


def test_a_run_that_ends_well_has_caught_all(written):
    written.failure(0, 1.0)
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=0)
    (failure,) = written.failures()

    assert failure.outcome is Outcome.CAUGHT


def test_an_exception_of_a_failing_allocation_is_the_same_failure(written):
    path = written.failure(0, 1.0)
    written.exception(0, 1.2, "out of memory", "OutOfMemoryError", "CUDA out of memory. …", path)
    written.span(0, "save", 1.3, 1.4)
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert failure.outcome is Outcome.ENDED


def test_an_error_of_its_own_after_a_failure_was_caught_is_what_ended_the_process(written):
    written.failure(0, 1.0)
    written.exception(0, 1.2, "exception", "ValueError", "bad labels")
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)
    error, caught = written.failures()

    assert (caught.kind, caught.outcome) == ("out of memory", Outcome.CAUGHT)
    assert (error.kind, error.outcome, error.part) == ("exception", Outcome.ENDED, Part.FIRST)
    assert error.findings[0].verdict is Verdict.UNKNOWN


def test_a_thread_that_ends_by_its_failure_does_not_end_the_process_for_certain(written):
    path = written.failure(0, 1.0)
    written.exception(0, 1.1, "out of memory", "OutOfMemoryError", "CUDA out of memory. …", path, "Thread-3")
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert (failure.thread, failure.outcome) == ("Thread-3", Outcome.OPEN)


def test_a_failure_that_no_exception_made_the_end_is_not_the_cause_beside_one_that_was(written):
    written.failure(1, 1.0)
    written.exception(0, 9.0, "exception", "ValueError", "bad labels")
    for number in (0, 1):
        written.rank(number, ("bye", START + 10 * SECOND))
    written.ended(10, code=1)
    states = {state.rank: state for state in written.failures()}

    assert (states[0].part, states[0].findings[0].verdict) == (Part.FIRST, Verdict.NOT_MEMORY)
    assert (states[1].part, states[1].outcome) == (Part.ALONE, Outcome.OPEN)


def test_peers_are_victims_of_a_rank_that_left_after_it_had_caught_its_failure(written):
    written.failure(1, 1.0)
    written.exception(0, 1.5, "exception", "DistBackendError", "NCCL error: remote process exited")
    for number in (0, 1):
        written.rank(number, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)
    first, victim = written.failures()

    assert (first.rank, first.part, first.outcome) == (1, Part.FIRST, Outcome.LEFT)
    assert (victim.rank, victim.part) == (0, Part.VICTIM)


AGAIN = (
    "Caught OutOfMemoryError in {}.\nOriginal Traceback (most recent call last):\n  …\nCUDA out of memory."
)


def test_a_data_loader_is_the_victim_of_its_worker(written):
    written.failure(1, 1.0)
    written.exception(0, 1.4, "exception", "OutOfMemoryError", AGAIN.format("DataLoader worker process 0"))
    written.ended(2, code=1)
    first, victim = written.failures()

    assert (first.pid, first.part, first.outcome) == (101, Part.FIRST, Outcome.ENDED)
    assert (victim.pid, victim.part, victim.findings[0].verdict) == (100, Part.VICTIM, Verdict.ANOTHER_RANK)
    assert "process 101" in victim.findings[0].headline


def test_what_a_replica_tells_again_is_the_same_failure(written):
    written.failure(0, 1.0)
    written.exception(0, 1.4, "exception", "OutOfMemoryError", AGAIN.format("replica 1 on device 1"))
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert (failure.kind, failure.outcome) == ("out of memory", Outcome.ENDED)


def test_an_allocator_without_observer_is_told_by_its_message(written):
    text = "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 5.00 GiB\nRequested               : 2.00 GiB\nDevice limit            : 8.00 GiB\nFree (according to CUDA): 1.00 GiB"  # noqa: E501
    written.exception(0, 1.2, "out of memory", "OutOfMemoryError", text)
    written.ended(2, code=1)
    (failure,) = [f for f in written.failures() if f.kind == "out of memory"]

    assert "2.00 GiB wanted" in failure.headline


def test_a_peers_complaint_after_anothers_failure_makes_a_victim(written):
    path = written.failure(1, 1.0)
    written.exception(1, 1.1, "out of memory", "OutOfMemoryError", "CUDA out of memory. …", path)
    written.exception(0, 1.5, "exception", "DistBackendError", "NCCL error: remote process exited")
    for number in (0, 1):
        written.rank(number, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)
    first, victim = written.failures()

    assert (first.rank, first.part) == (1, Part.FIRST)
    assert (victim.rank, victim.part) == (0, Part.VICTIM)
    assert victim.findings[0].verdict is Verdict.ANOTHER_RANK
    assert "rank 1" in victim.findings[0].headline


def test_another_ranks_own_error_is_its_own(written):
    path = written.failure(1, 1.0)
    written.exception(1, 1.1, "out of memory", "OutOfMemoryError", "CUDA out of memory. …", path)
    written.exception(0, 1.5, "exception", "KeyError", "labels")
    written.ended(2, code=1)
    states = {state.rank: state for state in written.failures()}

    assert states[0].part is Part.ALONE
    assert states[0].findings[0].verdict is Verdict.NOT_MEMORY


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("MemoryError", ""),
        (
            "RuntimeError",
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 7301444400 bytes.",
        ),
    ],
)
def test_an_error_of_host_memory_is_none_of_the_device(written, error, text):
    written.exception(0, 1.5, "exception", error, text)
    written.ended(2, code=1)
    (state,) = [s for s in written.failures() if s.kind == "exception"]

    assert state.findings[0].verdict is Verdict.HOST_MEMORY
    assert "on device" not in state.headline


def test_what_the_kernel_killed_is_the_first_cause_and_its_peers_are_victims(written):
    written.span(0, "forward", 0.5)
    written.span(1, "backward", 0.6)
    written.driver(("kill", START + SECOND, 1, "node", [[100, 1]]))
    written.ended(2, code=1)
    states = {state.rank: state for state in written.failures()}

    assert (states[0].kind, states[0].part, states[0].phase) == ("host kill", Part.FIRST, "forward")
    assert states[0].findings[0].verdict is Verdict.HOST_MEMORY
    assert states[1].part is Part.VICTIM


def test_how_a_rank_ended_is_told_by_the_kernel_where_no_keeper_waited_for_it(written):
    written.span(0, "forward", 0.5)
    written.driver(("gone", START + SECOND, 100, 1, None, 11))
    written.ended(2, code=1)
    (state,) = written.failures()

    assert "SIGSEGV" in state.headline
    assert state.findings[0].verdict is Verdict.UNKNOWN


def test_a_library_without_memory_beside_an_idle_cache_is_told_so(written):
    written.rank(0, ("device", START, 0, "aa", None, "card", 8 * GIB, "uuid"))
    written.driver(("gpu", START, 0, "aa", None, "card", 8 * GIB, None, "1", None))
    facts = {
        "ordinal": 0,
        "free_bytes": 20 * MIB,
        "counters": {
            "allocated_bytes.all.current": 2 * GIB,
            "reserved_bytes.all.current": 7 * GIB,
        },
    }
    record = {"t_ns": START + SECOND, "kind": "outside the allocator", "pid": 100, **facts}
    (written.run.failures / "a.json").write_text(json.dumps(record))
    text = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    written.exception(0, 1.0, "outside the allocator", "RuntimeError", text, "failures/a.json")
    written.ended(2, code=1)
    (state,) = written.failures()

    assert state.kind == "outside the allocator"
    assert state.findings[0].verdict is Verdict.RESERVED_IDLE
    assert "cublasCreate" in state.findings[0].headline


def test_a_view_that_is_held_at_a_failure_shows_what_the_failing_process_itself_had_read(written):
    written.rank(0, ("device", START, 0, "aa", None, "card", 8 * GIB, "uuid"))
    written.rank(0, ("sample", START + SECOND // 2, 0, GIB, 2 * GIB))
    written.driver(("gpu", START, 0, "aa", None, "card", 8 * GIB, None, "1", None))
    written.driver(("memory", START + SECOND // 2, 5, 0, 8 * GIB, 5 * GIB, 3 * GIB, 0, 2, None))
    written.driver(("processes", START + SECOND // 2, 5, 0, [(100, 3 * GIB, "C", None)], None))
    held = {"pid": 100, "used_bytes": 7 * GIB, "kind": "C", "name": "python"}
    written.failure(
        0,
        1.0,
        counters={"allocated_bytes.all.current": 6 * GIB, "reserved_bytes.all.current": 6 * GIB},
        free_bytes=GIB,
        driver={
            "t_ns": START + SECOND, "took_ns": 5, "total_bytes": 8 * GIB, "free_bytes": GIB,
            "driver_reserved_bytes": 0, "processes": [held],
        },
    )  # fmt: skip
    written.rank(0, ("sample", START + 2 * SECOND, 0, GIB, 2 * GIB))
    written.ended(3, code=1)
    written.failures()
    state = Recording(written.run)
    state.refresh()

    def shown(second):
        (device,) = state.read_at(START + round(second * SECOND), START, START + 3 * SECOND).devices
        return device.ledger.free.bytes

    assert (shown(0.9), shown(1.0)) == (5 * GIB, GIB)  # it stands for no other moment


# --- who else was there ---------------------------------------------------------------------------


def crowded(written, *rows, reason=None, free=1, tree=(), own=6 * GIB + 500 * MIB):
    """Rank 0 holds 6 of 24 GiB and asks for one more; rows are (pid, GiB, name, parent)."""
    t_ns = START + 20 * SECOND
    written.rank(0, ("device", START, 0, "aa", None, "card", 24 * GIB, "uuid"))
    written.rank(0, ("sample", t_ns, 0, 6 * GIB, 6 * GIB))
    written.driver(("gpu", START, 0, "aa", None, "card", 24 * GIB, None, "1", None), *tree)
    listed = [
        (100, own, "C", None),
        *((pid, size * GIB, "C", None) for pid, size, *_ in rows),
    ]
    for pid, _, name, parent in [(100, 0, "python", 1000), *rows]:
        written.driver(
            ("process", START, pid, 5, parent, name, "me", f"{name} train.py", True, None, None, None)
        )
    for second in (1, 10, 20):
        at = START + second * SECOND
        written.driver(("memory", at, 5, 0, 24 * GIB, free * GIB, (24 - free) * GIB, 0, 2, None))
        written.driver(("processes", at, 5, 0, [] if reason else listed, reason))
    counters = {"allocated_bytes.all.current": 6 * GIB, "reserved_bytes.all.current": 6 * GIB}
    written.failure(0, 20.1, counters=counters, free_bytes=free * GIB, requested_bytes=2 * GIB)
    told = written.lines["rank", 100]
    told[-1] = (*told[-1][:3], 2 * GIB, *told[-1][4:])
    written.ended(21, code=1)
    return next(f for f in written.failures() if f.kind == "out of memory")


def test_a_process_of_nobody_else_that_runs_the_same_program_was_left_behind(written):
    failure = crowded(written, (71, 16, "python", 1))

    assert failure.findings[0].verdict is Verdict.ORPHANS
    assert "kill 71" in failure.findings[0].trial


def test_a_process_that_has_left_the_tree_was_left_behind(written):
    trees = (
        ("tree", START + SECOND, [(100, 1, 99, None), (71, 5, 100, None)]),
        ("tree", START + 5 * SECOND, [(100, 1, 99, None)]),
        ("tree", START + 20 * SECOND, [(100, 1, 99, None)]),
    )
    failure = crowded(written, (71, 16, "pt_data_worker", 100), tree=trees)

    assert failure.findings[0].verdict is Verdict.ORPHANS


def test_a_list_from_before_it_grew_says_nothing_of_what_it_holds_outside_pytorch(written):
    grown = crowded(written, (71, 15, "python", 1000), own=2 * GIB)

    assert grown.ledger.free.bytes == 1 * GIB
    assert all(share.outside.reason is Reason.STALE for share in grown.ledger.ranks)
    assert not any("outside PyTorch" in e.says for f in grown.findings for e in f.evidence)


def test_a_daemon_of_another_program_is_a_stranger(written):
    failure = crowded(written, (71, 16, "ollama", 1))

    assert failure.findings[0].verdict is Verdict.OTHER_PROCESS


def test_what_no_listed_process_holds_is_said_to_be_nobodys(written):
    failure = crowded(written)

    assert failure.findings[0].verdict is Verdict.UNLISTED
    assert "16.5 GiB" in failure.findings[0].headline


def test_without_a_process_list_nobody_is_blamed_and_the_reason_is_given(written):
    failure = crowded(written, reason="no permission")

    assert failure.findings[0].verdict is Verdict.UNKNOWN
    assert any("no permission" in what for what in failure.findings[0].missing)


def test_readings_of_another_time_do_not_stand_for_the_failure(written):
    written.rank(0, ("device", START, 0, "aa", None, "card", 24 * GIB, "uuid"))
    written.driver(("gpu", START, 0, "aa", None, "card", 24 * GIB, None, "1", None))
    written.driver(("memory", START, 5, 0, 24 * GIB, 2 * GIB, 22 * GIB, 0, 2, None))
    written.driver(("processes", START, 5, 0, [(71, 20 * GIB, "C", None)], None))
    written.failure(0, 60.0)
    written.ended(61, code=1)
    (failure,) = written.failures()

    assert failure.findings[0].verdict is Verdict.UNKNOWN
    assert failure.ledger.total.bytes is None
    assert failure.ledger.total.reason is Reason.STALE


def test_a_rank_that_stands_still_after_anothers_failure_waits_for_it():
    book, ranks, driver = FailureBook(Path("nosuch")), {}, DriverModel()
    for number in (0, 1):
        ranks[100 + number, 1] = model = RankModel(100 + number, 1)
        for record in (
            records.Rank(START, number, number, 2, 2, "environment"),
            records.Begin(START + SECOND, 1, 1, None, 1, "backward", "", 3, []),
        ):
            model.take(record)
            book.of_rank((model.pid, 1), record)
    failing = ranks[100, 1]
    for record in (
        records.Failure(START + 2 * SECOND, 0, GIB, "backward", 3, None),
        records.Bye(START + 3 * SECOND),
    ):
        failing.take(record)
        book.of_rank((100, 1), record)
    stall = records.Stall(
        START + 14 * SECOND, START + SECOND, "backward", 3, ["a.py:1 run", "ddp.py:9 all_reduce"]
    )
    ranks[101, 1].take(stall)
    book.of_rank((101, 1), stall)
    now = Context(
        ranks,
        driver,
        Recognition(driver),
        {},
        (),
        Life.RUNNING,
        START + 15 * SECOND,
        lambda who: who[0] == 101,
    )
    first, waiting = book.states(now, ())

    assert (first.rank, first.outcome, first.part) == (0, Outcome.LEFT, Part.FIRST)
    assert (waiting.rank, waiting.kind, waiting.part) == (1, "silence", Part.VICTIM)
    assert "ddp.py:9 all_reduce" in waiting.headline

    on = records.Begin(START + 16 * SECOND, 3, 2, None, 1, "optimizer", "", 3, [])
    ranks[101, 1].take(on)
    book.of_rank((101, 1), on)

    assert [state.rank for state in book.states(now, ())] == [0]


# --- what a journal may not do --------------------------------------------------------------------


@pytest.mark.parametrize("path", ["failures/../run.json", "/etc/passwd", "run.json", "failures/nosuch.json"])
def test_a_journal_does_not_choose_what_is_opened(written, path):
    written.rank(0, ("failure", START + SECOND, 0, GIB, "forward", 1, path))
    written.ended(2, code=1)
    (state,) = written.failures()

    assert state.record is None
    assert state.record_reason


def test_a_torn_record_leaves_what_the_journal_says(written):
    path = written.failure(0, 1.0)
    (written.run.path / path).write_text('{"t_ns": 5, "kind"')
    written.ended(2, code=1)
    (state,) = written.failures()

    assert (state.requested_bytes, state.phase, state.step) == (GIB, "forward", 1)
    assert "not a failure record" in state.record_reason


def test_a_loop_of_failures_is_bounded(written):
    for number in range(350):
        written.rank(0, ("failure", START + number * SECOND, 0, GIB, "forward", 1, None))
    written.ended(400, code=0)

    assert len(written.failures()) == 100


def test_the_wire_has_what_these_tests_write():
    assert {"exception", "kill", "gone", "failure", "stall"} <= wire.FIELDS.keys()


def test_a_machine_of_many_short_processes_is_remembered_in_bounded_memory():
    book = FailureBook(Path("nosuch"))
    for pid in range(5000):
        book.of_driver(
            records.Processes(pid * SECOND, 1, 0, [(pid, MIB, "C", None), (77777, GIB, "C", None)])
        )
        book.of_driver(records.Tree(pid * SECOND, [(pid, 1, None, None), (77777, 1, None, None)]))

    assert 77777 in book.device(0).holders
    assert len(book.device(0).holders) <= 256
    assert len(book.tree_ns) <= 4096

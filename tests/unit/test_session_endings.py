"""Ends without a word: workers that have no journal, ranks that a launcher ended, and errors that follow."""

import signal

import pytest
from unit.test_session_failures import SECOND, START, Written

from gpumem_tui.analysis.failurestate import Part
from gpumem_tui.analysis.findings import Verdict
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.session import Recording


@pytest.fixture
def written(tmp_path):
    return Written(tmp_path)


def gone(written, second, pid=500, number=signal.SIGKILL):
    """A process without a journal, as the recorder saw it live and end."""
    written.driver(
        ("tree", START, [[pid, 1, 100, 0]]),
        ("process", START, pid, 1, 100, "pt_data_worker", "u", "python train.py", True, None, None, None),
        ("gone", START + round(second * SECOND), pid, 1, None, number),
    )


@pytest.mark.parametrize(
    "text",
    [
        "DataLoader worker (pid(s) 500) exited unexpectedly",
        "process 0 terminated with signal SIGKILL",
        "A process in the process pool was terminated abruptly while the future was running or pending.",
    ],
)
def test_an_error_that_says_that_a_worker_died_is_the_victim_of_the_worker_that_was_killed(written, text):
    gone(written, 1.0)
    written.exception(0, 1.5, "exception", "RuntimeError", text)
    written.rank(0, ("bye", START + 2 * SECOND))
    written.ended(2, code=1)
    first, victim = written.failures()

    assert (first.pid, first.part, first.kind) == (500, Part.FIRST, "host kill")
    assert first.findings[0].verdict is Verdict.UNKNOWN
    assert (victim.part, victim.findings[0].verdict) == (Part.VICTIM, Verdict.ANOTHER_RANK)
    assert "process 500 (pt_data_worker)" in victim.findings[0].headline


def test_a_worker_that_the_kernel_killed_for_want_of_host_memory_is_the_first_cause(written):
    gone(written, 1.0)
    written.driver(("kill", START + SECOND, 1, "cgroup", [(500, 1)]))
    written.exception(0, 1.5, "exception", "RuntimeError", "DataLoader worker (pid 500) exited unexpectedly")
    written.ended(2, code=1)
    first, victim = written.failures()

    assert (first.pid, first.findings[0].verdict) == (500, Verdict.HOST_MEMORY)
    assert victim.part is Part.VICTIM


def test_an_error_soon_after_a_process_was_killed_is_not_called_foreign_to_memory(written):
    gone(written, 1.0)
    written.exception(0, 1.5, "exception", "RuntimeError", "the queue is empty")
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert (failure.part, failure.findings[0].verdict) == (Part.FIRST, Verdict.UNKNOWN)
    assert "process 500 (pt_data_worker) had ended (killed by SIGKILL)" in failure.findings[0].headline


@pytest.mark.parametrize("how", ["exited unexpectedly", "is killed by signal: Killed. "])
def test_a_worker_that_died_is_not_called_foreign_to_memory_where_nobody_saw_it_end(written, how):
    written.exception(0, 1.5, "exception", "RuntimeError", f"DataLoader worker (pid 500) {how}")
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert failure.findings[0].verdict is Verdict.UNKNOWN
    assert failure.findings[0].missing == ("why that process ended",)


def test_an_error_of_a_worker_that_lives_is_its_own(written):
    text = "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback …"
    written.exception(0, 1.5, "exception", "KeyError", text)
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert failure.findings[0].verdict is Verdict.NOT_MEMORY


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGSEGV, "signal"), (signal.SIGKILL, "host kill")])
def test_a_rank_that_its_launcher_ends_after_another_one_died_without_a_word_is_its_victim(
    written, number, kind
):
    written.span(0, "forward", 0.2)
    written.span(1, "forward", 1.0)
    gone(written, 1.5, pid=101, number=number)
    gone(written, 1.6, pid=100, number=signal.SIGTERM)
    written.ended(2, code=1)
    first, victim = written.failures()

    assert (first.rank, first.part, first.kind) == (1, Part.FIRST, kind)
    assert (victim.rank, victim.part, victim.findings[0].verdict) == (0, Part.VICTIM, Verdict.ANOTHER_RANK)


def test_a_rank_is_the_victim_of_one_that_was_killed_while_it_started(written):
    written.span(0, "forward", 0.2)
    gone(written, 1.5)
    gone(written, 1.6, pid=100, number=signal.SIGTERM)
    written.ended(2, code=1)
    first, victim = written.failures()

    assert (first.pid, first.part, first.kind) == (500, Part.FIRST, "host kill")
    assert (victim.rank, victim.part, victim.findings[0].verdict) == (0, Part.VICTIM, Verdict.ANOTHER_RANK)


def test_a_rank_that_left_in_order_with_an_error_s_code_is_the_cause_of_those_ended_after_it(written):
    written.span(0, "forward", 0.2)
    written.span(1, "forward", 1.0, 1.1)
    written.rank(1, ("bye", START + round(1.2 * SECOND)))
    written.driver(("gone", START + round(1.5 * SECOND), 101, 1, 3, None))
    gone(written, 1.6, pid=100, number=signal.SIGTERM)
    written.ended(2, code=1)
    first, victim = written.failures()

    assert (first.rank, first.part, first.kind) == (1, Part.FIRST, "exit")
    assert (victim.rank, victim.part) == (0, Part.VICTIM)


def test_a_program_that_leaves_in_order_with_a_code_of_its_own_has_not_failed(written):
    written.span(0, "forward", 0.2, 0.3)
    written.rank(0, ("bye", START + SECOND))
    written.ended(2, code=3, pid=100)

    assert written.failures() == ()


@pytest.mark.parametrize(
    ("ended", "kind", "asks"),
    [
        ({"code": 3}, "exit", "sys.exit"),
        ({"signal": signal.SIGTERM}, "signal", "who sent"),
        ({"signal": signal.SIGSEGV}, "signal", "FAULTHANDLER"),
        ({"code": 1, "pid": 99}, "gone", "launcher"),
    ],
)
def test_an_end_without_a_word_is_called_what_is_known_of_it(written, ended, kind, asks):
    written.span(0, "forward", 0.2, 0.3)
    written.ended(2, **{"pid": 100} | ended)
    (failure,) = written.failures()

    assert (failure.kind, failure.findings[0].verdict) == (kind, Verdict.UNKNOWN)
    assert asks in failure.findings[0].check


def test_a_rank_that_left_well_has_not_failed_where_another_one_has(written):
    written.span(0, "forward", 0.2, 0.3)
    written.ended(2, code=0, pid=100)
    written.span(1, "forward", 0.2, 0.3)
    written.lines["keeper", 98] = [("start", START, 101, 1), ("exit", START + SECOND, 3, None)]

    assert [failure.rank for failure in written.failures()] == [1]


@pytest.mark.parametrize(
    ("lines", "life", "ending"),
    [
        ([("gone", START + SECOND, 100, 1, None, signal.SIGKILL)], Life.FAILED, "killed by SIGKILL"),
        ([("gone", START + SECOND, 100, 1, 3, None)], Life.FAILED, "exit code 3"),
        ([], Life.LOST, None),
    ],
)
def test_the_life_of_a_rank_says_how_it_ended_where_somebody_saw_it(written, lines, life, ending):
    written.span(0, "forward", 0.2)
    written.driver(*lines)
    written.ended(2, code=1)
    written.failures()
    (rank,) = Recording(written.run).read().ranks

    assert (rank.life, rank.ending) == (life, ending)


def test_a_rank_that_said_goodbye_and_gave_an_error_s_code_has_failed(written):
    written.rank(0, ("bye", START + SECOND))
    written.ended(2, code=1, pid=100)
    written.failures()
    (rank,) = Recording(written.run).read().ranks

    assert (rank.life, rank.ending) == (Life.FAILED, "exit code 1")


def test_ranks_that_were_all_asked_to_end_are_nobodys_victims(written):
    written.span(0, "forward", 0.2)
    written.span(1, "forward", 1.0)
    gone(written, 1.5, pid=101, number=signal.SIGTERM)
    gone(written, 1.6, pid=100, number=signal.SIGTERM)
    written.ended(2, code=1)

    assert {failure.findings[0].verdict for failure in written.failures()} == {Verdict.UNKNOWN}


def test_a_helper_that_is_ended_on_purpose_is_no_failure(written):
    gone(written, 1.0, number=signal.SIGTERM)
    written.exception(0, 1.5, "exception", "KeyError", "labels")
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert failure.findings[0].verdict is Verdict.NOT_MEMORY


def test_a_process_killed_while_it_starts_is_told_where_the_run_fails_without_another_word(written):
    gone(written, 1.0)
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert (failure.pid, failure.part, failure.kind) == (500, Part.FIRST, "host kill")


def test_a_run_that_ends_well_lost_nobody_to_speak_of(written):
    gone(written, 1.0)
    written.ended(2, code=0)

    assert written.failures() == ()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4096 bytes."),
        ("Fail", "[ONNXRuntimeError] : 6 : " + 300 * "x" + " Failed to allocate memory for requested buffer"),
    ],
)
def test_an_error_that_speaks_of_memory_in_words_of_its_own_is_not_called_foreign_to_it(written, error, text):
    written.exception(0, 1.5, "exception", error, text)
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert failure.findings[0].verdict is Verdict.UNKNOWN
    assert "whose memory it was" in failure.findings[0].missing


def test_a_library_whose_error_names_host_and_device_ran_out_of_the_device(written):
    text = "std::bad_alloc: out_of_memory: CUDA error at: a.hpp:70: cudaErrorMemoryAllocation out of memory"
    written.exception(0, 1.5, "outside the allocator", "MemoryError", text)
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert failure.findings[0].verdict is not Verdict.HOST_MEMORY
    assert "found no memory outside PyTorch" in failure.headline


def test_a_memory_error_that_names_the_device_is_not_said_to_be_of_the_host(written):
    written.exception(0, 1.5, "exception", "MemoryError", "cudaMalloc of 3221225472 bytes: CUDA error 2")
    written.ended(2, code=1)
    (failure,) = written.failures()

    assert failure.findings[0].verdict is Verdict.UNKNOWN

"""A sweep's arithmetic: which value is tried next, and what the outcomes say."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis import sweep
from gpumem_tui.analysis.sweep import Attempt, Outcome, Step, Verdict
from gpumem_tui.errors import BadInput, UsageError
from gpumem_tui.units import GIB, MIB
from gpumem_tui.views.report import text
from gpumem_tui.views.sweep import sheet_of


def tried(value, outcome, variable="batch", case=()):
    step = Step(variable, str(value), case, ())
    return Attempt(1, step, outcome, 0 if outcome in (Outcome.PASSED, Outcome.CAUGHT) else 1, "run")


def go_on(fits, listed=(1,), most=1 << 20, grain=1):
    """All attempts of ``--until-oom`` against a rule that says which values fit."""
    attempts = [tried(v, Outcome.PASSED if fits(v) else Outcome.OUT_OF_MEMORY) for v in listed]
    while (value := sweep.next_number(attempts, "batch", most, grain)) is not None:
        assert all(int(a.step.value) != value for a in attempts), "a value is tried once"
        attempts.append(tried(value, Outcome.PASSED if fits(value) else Outcome.OUT_OF_MEMORY))
    return attempts


@given(limit=st.integers(0, 1 << 18), listed=st.lists(st.integers(1, 1000), min_size=1, unique=True))
def test_bisection_finds_the_true_boundary(limit, listed):
    attempts = go_on(lambda value: value <= limit, sorted(listed))

    found = sweep.boundary(attempts, "batch")

    if limit == 0:
        assert (found.verdict, found.smallest_out_of_memory) == (Verdict.BELOW, 1)
    else:
        assert (found.largest_passed, found.smallest_out_of_memory) == (limit, limit + 1)
        assert found.verdict is Verdict.BETWEEN


@given(limit=st.integers(1, 1 << 16), grain=st.integers(1, 64))
def test_a_coarse_grain_leaves_an_interval_no_wider_than_it(limit, grain):
    attempts = go_on(lambda value: value <= limit, grain=grain)

    found = sweep.boundary(attempts, "batch")

    assert found.largest_passed <= limit < found.smallest_out_of_memory
    assert found.smallest_out_of_memory - found.largest_passed <= grain


def test_the_number_of_attempts_grows_with_the_logarithm():
    assert len(go_on(lambda value: value <= 100_000)) <= 36


def test_a_boundary_that_is_not_reached_is_said_to_be_so():
    attempts = go_on(lambda value: True, most=64)

    found = sweep.boundary(attempts, "batch")

    assert found.verdict is Verdict.NOT_REACHED
    assert found.sentence == "batch: nothing ran out of memory up to 64"


@given(worst=st.integers(3, 1 << 12), listed=st.integers(1, 2))
def test_an_island_of_failures_at_the_boundary_that_is_found_is_seen_from_beside_it(worst, listed):
    """Only ``worst`` to twice as much less one run out: beyond, everything passes again."""
    attempts = go_on(lambda value: not worst <= value < 2 * worst, [listed])

    found = sweep.boundary(attempts, "batch")

    assert (found.verdict, found.smallest_out_of_memory) == (Verdict.NOT_MONOTONIC, worst)


def test_odd_values_that_need_more_are_found_below_the_boundary():
    attempts = go_on(lambda value: value <= 30 and (value % 2 == 0 or value == 1), most=64)

    assert sweep.boundary(attempts, "batch").verdict is Verdict.NOT_MONOTONIC


def test_success_above_a_failure_is_not_monotonic_and_ends_the_search():
    attempts = [tried(1, Outcome.PASSED), tried(2, Outcome.OUT_OF_MEMORY), tried(4, Outcome.PASSED)]

    found = sweep.boundary(attempts, "batch")

    assert sweep.next_number(attempts, "batch", 64) is None
    assert found.verdict is Verdict.NOT_MONOTONIC
    assert "2 ran out of memory, and 4 passed" in found.sentence


def test_a_failure_that_is_not_memory_is_no_boundary():
    attempts = [tried(1, Outcome.PASSED), tried(2, Outcome.FAILED)]

    found = sweep.boundary(attempts, "batch")

    assert sweep.next_number(attempts, "batch", 64) is None
    assert (found.verdict, found.smallest_out_of_memory) == (Verdict.NOT_REACHED, None)
    assert "2 failed for another reason" in found.sentence


def test_a_value_passes_only_if_all_its_cases_do():
    attempts = [
        tried(4, Outcome.PASSED, case=(("prompt", "usual"),)),
        tried(4, Outcome.OUT_OF_MEMORY, case=(("prompt", "limit"),)),
    ]

    assert sweep.outcomes(attempts, "batch") == {4: Outcome.OUT_OF_MEMORY}


def test_the_boundary_names_the_case_that_ran_out_of_memory():
    usual, long = (("prompt", "usual"),), (("prompt", "long"),)
    attempts = [
        *[tried(4, Outcome.PASSED, case=usual), tried(4, Outcome.PASSED, case=long)],
        *[tried(5, Outcome.PASSED, case=usual), tried(5, Outcome.OUT_OF_MEMORY, case=long)],
    ]

    found = sweep.boundary(attempts, "batch")

    assert found.sentence == "batch: 4 passed and 5 ran out of memory with prompt=long, in these runs"


def test_a_value_ran_out_of_memory_even_where_another_case_failed_otherwise():
    attempts = [
        tried(4, Outcome.OUT_OF_MEMORY, case=(("prompt", "usual"),)),
        tried(4, Outcome.FAILED, case=(("prompt", "long"),)),
    ]

    assert sweep.outcomes(attempts, "batch") == {4: Outcome.OUT_OF_MEMORY}


def test_what_was_caught_or_interrupted_is_said_beside_the_boundary():
    attempts = [tried(1, Outcome.PASSED), tried(2, Outcome.CAUGHT), tried(4, Outcome.INTERRUPTED)]

    found = sweep.boundary(attempts, "batch")

    assert (found.verdict, found.largest_passed) == (Verdict.NOT_REACHED, 2)
    assert "batch=2 passed after an out-of-memory error that the program caught" in found.sentence
    assert "batch=4 was interrupted" in found.sentence


def test_an_interrupted_attempt_speaks_for_its_value_until_it_was_made_again():
    def at(value, outcome, case="a"):
        step = Step("batch", str(value), (("case", case),), (("batch", str(value)), ("case", case)), True)
        return Attempt(1, step, outcome, None, "run")

    cut = [at(4, Outcome.PASSED), at(4, Outcome.INTERRUPTED, "b")]
    again = [*cut, at(4, Outcome.OUT_OF_MEMORY, "b")]

    assert sweep.outcomes(cut, "batch") == {4: Outcome.INTERRUPTED}
    assert sweep.searched(cut, "batch") == ["4"]
    assert sweep.is_done(cut, cut[0].step)
    assert not sweep.is_done(cut, cut[1].step)
    assert sweep.outcomes(again, "batch") == {4: Outcome.OUT_OF_MEMORY}
    assert "interrupted" not in sweep.boundary(again, "batch").sentence


def test_values_without_an_order_have_no_boundary():
    attempts = [tried("fp16", Outcome.PASSED, "dtype"), tried("fp32", Outcome.OUT_OF_MEMORY, "dtype")]

    assert sweep.boundary(attempts, "dtype").verdict is Verdict.UNKNOWN


def test_one_variable_is_varied_at_a_time_and_cases_are_kept_through():
    variables = [sweep.variable_of("batch=1,2"), sweep.variable_of("context=8,16")]
    cases = [sweep.variable_of("prompt=usual,limit")]

    settings = [dict(step.settings) for step in sweep.planned(variables, cases)]

    assert [(s["batch"], s["context"], s["prompt"]) for s in settings] == [
        *[("1", "8", "usual"), ("1", "8", "limit"), ("2", "8", "usual"), ("2", "8", "limit")],
        *[("1", "16", "usual"), ("1", "16", "limit")],
    ]


def test_what_every_series_begins_with_is_tried_once_and_counts_for_each():
    variables = [sweep.variable_of("batch=2,4"), sweep.variable_of("context=8,16")]
    attempts = [
        Attempt(1, step, Outcome.OUT_OF_MEMORY if step.value == "16" else Outcome.PASSED, 0, "run")
        for step in sweep.planned(variables, [])
    ]

    assert [attempt.step.said() for attempt in attempts] == [
        *["batch=2 context=8", "batch=4 context=8", "batch=2 context=16"],
    ]
    assert sweep.outcomes(attempts, "batch") == {2: Outcome.PASSED, 4: Outcome.PASSED}
    assert sweep.outcomes(attempts, "context") == {8: Outcome.PASSED, 16: Outcome.OUT_OF_MEMORY}
    assert sweep.next_number(attempts, "context", 1 << 20) == 12


def test_the_fields_of_sweep_json_are_only_ever_added_to():
    def fields(kind):
        return [field.name for field in msgspec.structs.fields(kind)]

    assert fields(sweep.Sweep)[:14] == [
        *["name", "command", "variables", "cases", "simulated", "labels", "started_wall_ns", "attempts"],
        *["boundaries", "stopped", "gpumem_tui_sweep", "host", "version", "revision"],
    ]
    assert fields(sweep.Sweep)[14:16] == ["options", "resumed"]
    assert fields(Step)[:6] == ["variable", "value", "case", "settings", "bisecting", "base"]
    assert fields(Attempt)[:10] == [
        *["order", "step", "outcome", "exit_code", "run", "duration_ns", "peaks", "device_used_bytes"],
        *["failed_phase", "inputs"],
    ]
    assert fields(sweep.Peak)[:5] == [
        *["rank", "pid", "ordinal", "peak_allocated_bytes", "peak_reserved_bytes"]
    ]
    assert fields(sweep.Boundary)[:4] == [
        *["verdict", "sentence", "largest_passed", "smallest_out_of_memory"]
    ]
    assert {outcome.value for outcome in Outcome} >= {
        *["passed", "passed, out of memory caught", "out of memory", "failed", "interrupted"]
    }


def test_only_named_placeholders_are_replaced():
    command = ["python", "x.py", "--n={batch}", "{'json': 1}", "{batch}{batch}"]

    assert sweep.fill(command, {"batch": "8"}) == ["python", "x.py", "--n=8", "{'json': 1}", "88"]


@pytest.mark.parametrize("text", ["batch", "batch=", "=1,2", "batch=1,,2", "batch=1,1", "b atch=1"])
def test_a_variable_that_cannot_be_read_is_refused(text):
    with pytest.raises(BadInput, match="--vary"):
        sweep.variable_of(text)


@pytest.mark.parametrize("values", ["a,b", "2,1", "0,1", "-1,2", "1.5,2", f"1,{1 << 50}"])
def test_bisection_needs_rising_whole_numbers(values):
    with pytest.raises(BadInput, match="--until-oom needs"):
        sweep.numbers_of(sweep.variable_of(f"batch={values}"))


def test_a_value_that_the_command_does_not_use_is_refused():
    with pytest.raises(UsageError, match=r"does not use \{batch\}"):
        sweep.check_placeholders(["python", "train.py"], ["batch"])


@pytest.mark.parametrize(("read", "shown"), [(100 * MIB, "≥ 100 MiB"), (2500 * MIB, "2.44 GiB")])
def test_a_device_that_was_not_read_at_its_peak_is_shown_as_a_bound(read, shown):
    peak = sweep.Peak(None, 7, 0, peak_allocated_bytes=GIB, peak_reserved_bytes=2 * GIB)
    attempt = msgspec.structs.replace(tried(1, Outcome.PASSED), peaks=(peak,), device_used_bytes=(read,))
    made = sweep.Sweep("s", ("true",), (), (), None, {}, 0, attempts=(attempt,))

    said = text.render(sheet_of(made, "/w"), cells=100)

    assert f"2.00 GiB {shown}" in " ".join(said.split())
    assert ("no reading fell on its peak" in said) is shown.startswith("≥")

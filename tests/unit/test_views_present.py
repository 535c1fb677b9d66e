"""What people read of a state: sums, reasons, sentences."""

import msgspec
import pytest
from tui import scripted

from gpumem_tui.analysis import ledger as books
from gpumem_tui.analysis.ledger import Counters
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import Event, Health, Severity
from gpumem_tui.records import Reason
from gpumem_tui.units import GIB
from gpumem_tui.views import holders, panels, present
from gpumem_tui.views.text import TERMS, brief_command, plain

SECOND = scripted.SECOND


def terms_of(state):
    return {term.key: term for term in present.device_terms(state.devices[0], state)}


def test_the_terms_of_a_fully_visible_card_sum_to_its_total():
    state = scripted.picture(60)

    terms = present.device_terms(state.devices[0], state)

    assert [term.key for term in terms] == list(TERMS)
    assert sum(term.bytes for term in terms) == state.devices[0].ledger.total.bytes


def test_a_card_without_driver_shows_a_reason_and_never_zero():
    terms = terms_of(scripted.without_driver())

    for key in ("outside", "others", "driver", "unattributed", "free"):
        assert terms[key].bytes is None
        assert terms[key].figure == "—"
        assert "no driver" in terms[key].note


def test_processes_that_the_driver_hides_are_merged_and_said():
    state = scripted.hidden_processes()

    terms = terms_of(state)
    remarks = " ".join(present.device_remarks(state.devices[0], state))

    assert terms["unattributed"].label == "merged"
    assert terms["unattributed"].bytes == scripted.CONTEXT
    assert terms["others"].note == "hidden"
    assert "merged, not told apart here: outside + processes not listed + unattributed" in remarks


def test_a_rank_whose_counters_are_missing_makes_the_sum_partial_and_says_whose():
    state = scripted.picture(60, 2)
    device = state.devices[0]
    reading = books.DriverReading(
        state.now_ns, 24 * GIB, 10 * GIB, 0, processes_t_ns=state.now_ns, processes=()
    )
    ours = [
        Counters(4700, 0, state.now_ns, 2 * GIB, 3 * GIB),
        Counters(4701, 1, None, None, None, Reason.UNAVAILABLE),
    ]
    device = msgspec.structs.replace(device, ledger=books.ledger(reading, ours))

    allocated = present.device_terms(device, state)[0]

    assert allocated.bytes == 2 * GIB
    assert allocated.note == "1 of 2 known; rank 1: counters unavailable"


def test_before_any_rank_has_spoken_allocated_is_not_read_yet():
    state = scripted.picture(60)
    reading = books.DriverReading(state.now_ns, 24 * GIB, 20 * GIB, GIB, processes_t_ns=state.now_ns)
    device = msgspec.structs.replace(state.devices[0], ledger=books.ledger(reading, []))
    state = msgspec.structs.replace(state, devices=(device,), ranks=())

    assert terms_of(state)["allocated"].note == "not read yet"


def test_a_negative_outside_keeps_its_sign():
    state = scripted.picture(60)
    process = books.DriverProcess(4700, 2 * GIB)
    reading = books.DriverReading(
        state.now_ns, 24 * GIB, 20 * GIB, GIB, processes_t_ns=state.now_ns, processes=(process,)
    )
    ours = [Counters(4700, 0, state.now_ns, 2 * GIB, 3 * GIB)]
    device = msgspec.structs.replace(state.devices[0], ledger=books.ledger(reading, ours))
    state = msgspec.structs.replace(state, devices=(device,))

    assert terms_of(state)["outside"].figure == "−1.00"


def test_fresh_figures_show_no_age_and_stale_ones_do():
    fresh = scripted.picture(60)
    stale = msgspec.structs.replace(fresh, now_ns=fresh.now_ns + 42 * scripted.SECOND)

    assert present.device_remarks(fresh.devices[0], fresh) == []
    assert present.device_remarks(stale.devices[0], stale) == ["figures: read 40 s ago"]


def skewed(state):
    """A device whose rank was read two seconds before the driver."""
    process = books.DriverProcess(4700, 4 * GIB)
    reading = books.DriverReading(
        state.now_ns, 24 * GIB, 19 * GIB, GIB, processes_t_ns=state.now_ns, processes=(process,)
    )
    ours = [Counters(4700, 0, state.now_ns - 2 * scripted.SECOND, 2 * GIB, 3 * GIB)]
    return msgspec.structs.replace(state.devices[0], ledger=books.ledger(reading, ours))


def test_a_skewed_pair_of_readings_is_said():
    state = scripted.picture(60)
    device = skewed(state)

    assert "rank 0: outside joins readings 2.0 s apart" in present.device_remarks(device, state)


def test_a_merged_term_of_a_skewed_pair_of_readings_says_so_too():
    state = scripted.picture(60)
    unlisted = books.DriverReading(state.now_ns, 24 * GIB, 23 * GIB, GIB, processes_t_ns=state.now_ns)
    ours = [Counters(4700, 0, state.now_ns + scripted.SECOND, 2 * GIB, 3 * GIB)]
    device = msgspec.structs.replace(state.devices[0], ledger=books.ledger(unlisted, ours))

    assert device.ledger.merged.bytes == -3 * GIB
    assert "rank 0: merged joins readings 1.0 s apart" in present.device_remarks(device, state)


def test_a_block_that_comes_every_second_marks_a_rough_figure_in_place_and_keeps_its_height():
    state = scripted.picture(60)
    calm, rough = (panels.device_block(device, state, 80) for device in (state.devices[0], skewed(state)))

    assert len(rough) == len(calm)
    assert "▒ outside  ≈1.00" in plain(rough[2])
    assert "≈" not in plain(calm[2])


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (scripted.facts(), ""),
        (scripted.facts(simulated="2 × 24 GiB"), "SIMULATED 2 × 24 GiB"),
        (scripted.facts(recorded=True), "RECORDED"),
        (scripted.facts(simulated="24 GiB", recorded=True), "SIMULATED 24 GiB  RECORDED"),
    ],
)
def test_the_badge_says_what_is_not_real(facts, words):
    assert present.badge(facts) == words


def test_a_running_run_shows_no_clock_that_ticks():
    first = scripted.picture(605)
    later = msgspec.structs.replace(first, now_ns=first.now_ns + 30 * scripted.SECOND)

    assert present.run_sentence(first) == present.run_sentence(later)
    assert "10 min" in present.run_sentence(first)


@pytest.mark.parametrize(
    ("held_s", "now_s", "told"),
    [
        (0, 0, ""),
        (0, 9.9, ""),
        (0, 10, "10 s"),
        (0, 59, "50 s"),
        (4.2, 9, "4.2 s"),
        (42, 42, "42 s"),
        (42, 49, "42 s"),
        (42, 50, "50 s"),
        (42, 130, "2 min"),
        (192, 192, "3 min 12 s"),
        (192, 239, "3 min 12 s"),
        (192, 240, "4 min"),
    ],
)
def test_how_far_a_held_picture_is_behind_is_exact_at_first_and_then_counts_no_seconds(held_s, now_s, told):
    assert present.behind(int(held_s * SECOND), int(now_s * SECOND)) == told


def test_an_ended_run_says_how_and_after_how_long():
    assert present.run_sentence(scripted.ended(200, code=3)) == "exit code 3, after 3 min 20 s"


def test_names_of_other_people_cannot_move_the_cursor():
    state = scripted.picture(60)
    evil = msgspec.structs.replace(state.processes[1], command="\x1b[2Jrm\x07 \u202egnp.exe")
    state = msgspec.structs.replace(state, processes=(evil,))

    assert holders.process_rows(state)[0].command == "�[2Jrm� �gnp.exe"


def test_ranks_show_where_they_are_and_what_they_do():
    text = [plain(line).rstrip() for line in panels.rank_lines(scripted.picture(60, 2), 80)]

    assert text == [
        "   rank 0  GPU 0  step 120   8.90 of 11.60 GiB  train › forward",
        "   rank 1  GPU 1  step 120   7.52 of 11.60 GiB  train › forward",
    ]


def retried(state, times):
    """The same picture, in which the first rank's allocator had to empty its cache so many times."""
    level = msgspec.structs.replace(state.ranks[0].levels[0], alloc_retries=times)
    first = msgspec.structs.replace(state.ranks[0], step=11_820, levels=(level,))
    return msgspec.structs.replace(state, ranks=(first, *state.ranks[1:]))


@pytest.mark.parametrize("cells", [67, 72, 80, 90, 120])
def test_what_must_be_known_of_a_rank_is_whole_and_its_phase_gives_way(cells):
    lines = [plain(line) for line in panels.rank_lines(retried(scripted.picture(60, 2), 2), cells)]

    assert "forward  2 allocation retries " in f"{lines[0]} "
    assert {line.index("GiB  ") for line in lines} == {lines[0].index("GiB  ")}


def test_the_columns_of_ranks_beside_a_note_stand_still_whatever_the_phase():
    columns = set()
    for second in range(60, 66):
        lines = panels.rank_lines(retried(scripted.picture(second, 2), 2), 67)
        columns.add(plain(lines[0]).index("GiB"))

    assert len(columns) == 1


def test_a_silent_rank_says_for_how_long():
    quiet = scripted.rank(0, 60, life=Life.SILENT, spoke_ns=scripted.START + 20 * scripted.SECOND)
    state = scripted.picture(60, ranks=(quiet,))

    row = holders.rank_rows(state)[0]

    assert row.note == "silent for 40 s"
    assert row.role == "warning"


def test_what_the_recording_lost_is_told_before_the_events():
    state = scripted.picture(60, health=Health(corrupt_lines=3, dropped=7, notes=("disk full",)))

    lines = [plain(line).strip() for line in panels.event_lines(state, 80)]

    assert lines[:3] == [
        "3 unreadable lines in the recording, skipped",
        "7 readings could not be written",
        "disk full",
    ]


def test_an_event_says_whom_it_concerns():
    event = Event(scripted.START, Severity.WARNING, "grew", rank=1, device=0)

    assert present.event_sentence(event) == "rank 1, GPU 0: grew"


def test_events_say_what_they_count_and_how_many_were_before_them():
    events = (
        Event(scripted.START, Severity.INFO, "empty_cache", more=1240),
        Event(scripted.START + 9 * scripted.SECOND, Severity.INFO, "first save"),
    )
    state = msgspec.structs.replace(scripted.picture(60), events=events, earlier_events=12_345)
    lines = [plain(line).rstrip() for line in panels.event_lines(state, 80)]

    assert lines[0].endswith("first save")
    assert lines[1].endswith("empty_cache  and 1,240 more soon after")
    assert lines[2] == "   12,345 earlier: go back in time (←, E)"


@pytest.mark.parametrize(
    ("command", "brief"),
    [
        ("/opt/conda/bin/python -u /home/you/work/train.py --lr 1", "python -u …/train.py --lr 1"),
        ("python train.py --data /data/imagenet", "python train.py --data /data/imagenet"),
        ("ray::TrainWorker.run()", "ray::TrainWorker.run()"),
        ("/usr/bin/", "/usr/bin/"),
        ("", ""),
    ],
)
def test_a_command_in_a_row_shows_names_rather_than_folders(command, brief):
    assert brief_command(command) == brief


@pytest.mark.parametrize("cells", range(32, 221))
def test_no_figure_of_a_ledger_is_cut_and_its_unit_is_there_at_any_width(cells):
    state = scripted.picture(60)
    terms = present.device_terms(state.devices[0], state)
    lines = [plain(line).rstrip() for line in panels.term_rows(terms, cells)]

    assert not any("…" in line for line in lines)
    assert lines[-1].endswith(" GiB")

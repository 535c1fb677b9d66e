"""Phases, composition, inputs and the facts around them, asserted as people and scripts read them."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tui import scripted

from gpumem_tui.analysis import ledger as books
from gpumem_tui.analysis.ledger import Counters, DriverProcess, DriverReading
from gpumem_tui.analysis.rankstate import Life, PhaseRow
from gpumem_tui.units import GIB, MIB
from gpumem_tui.views import jsonview, panels, phasepanels, present, timeline
from gpumem_tui.views import plain as printed
from gpumem_tui.views.text import TEXTURE, line_width, plain

SECOND = scripted.SECOND


def table_text(state, cells):
    table = phasepanels.phase_table(state, cells)
    return [plain(line).rstrip() for line in (*table.head, *table.rows)], table.dropped


def over(moment="at the out-of-memory error of rank 0", seconds=60, **changes):
    """An ended run whose ledgers show a moment before its end."""
    state = scripted.ended(seconds, code=1)
    facts = msgspec.structs.replace(
        state.facts, moment=moment, moment_ns=scripted.START + (seconds - 2) * SECOND, **changes
    )
    return msgspec.structs.replace(state, facts=facts)


# --- the table ------------------------------------------------------------------------------------


def test_the_table_has_allocated_and_reserved_apart_and_warm_below_cold():
    text, dropped = table_text(scripted.with_phases(), 100)

    assert text == [
        "                                          allocated GiB         reserved GiB",
        " rank phase     name  GPU        n  start   peak    end  start   peak    end median",
        " 0    forward   Bert  0   cold   1   1.00   3.00   2.00   4.00   6.00   5.00  22 ms",
        " 0    forward   Bert  0   warm 119   1.00   3.00   2.00   4.00   6.00   5.00   3 ms",
        " 0    backward        0   cold   1   1.00   3.00   2.00   4.00   6.00   5.00  22 ms",
        " 0    backward        0   warm 119   1.00   3.00   2.00   4.00   6.00   5.00   3 ms",
        " 0    optimizer AdamW 0   cold   1   1.00   3.00   2.00   4.00   6.00   5.00  22 ms",
        " 0    optimizer AdamW 0   warm 119   1.00   3.00   2.00   4.00   6.00   5.00   3 ms",
        " start, end: of the latest span",
    ]
    assert dropped == ""


@pytest.mark.parametrize(
    ("cells", "dropped"),
    [
        (83, ""),
        (80, "name"),
        (76, "name, allocated start"),
        (69, "name, allocated start, reserved start"),
        (60, "name, allocated start, reserved start, reserved end"),
    ],
)
def test_columns_give_way_in_order_and_are_named(cells, dropped):
    assert table_text(scripted.with_phases(60, 2), cells)[1] == dropped


@pytest.mark.parametrize("cells", range(36, 121))
def test_columns_give_way_before_a_figure_is_cut(cells):
    rows = (scripted.phase(0, "optimizer", "AdamW", False, errors=2), scripted.phase(1, "eval", "Bert", True))

    text, _ = table_text(scripted.with_phases(60, 2, phases=rows), cells)

    assert not any("…" in line for line in text)


def test_of_a_single_process_which_it_is_gives_way_before_anything_else():
    text, dropped = table_text(scripted.with_phases(), 80)

    assert text[1].startswith(" phase     name  GPU        n  start   peak    end")
    assert dropped == "rank"


def test_a_name_that_tells_two_rows_apart_stays_longer_than_the_starts():
    rows = (scripted.phase(0, "optimizer", "Adam", True), scripted.phase(0, "optimizer", "SGD", True))

    text, dropped = table_text(scripted.with_phases(phases=rows), 70)

    assert "optimizer Adam" in text[2]
    assert "optimizer SGD" in text[3]
    assert "name" not in dropped


def test_a_peak_that_is_a_lower_bound_says_at_least():
    rows = (scripted.phase(0, "forward", "", True, exact=False),)

    text, _ = table_text(scripted.with_phases(phases=rows), 80)

    assert "1.00  ≥3.00   2.00   4.00  ≥6.00   5.00" in text[2]
    assert text[3] == " ≥ at least that much: memory moved while the peak was read"


def test_a_start_that_was_folded_away_is_missing_and_never_zero():
    rows = (scripted.phase(0, "forward", "", False, start_allocated_bytes=None, start_reserved_bytes=None),)

    text, _ = table_text(scripted.with_phases(phases=rows), 80)

    assert "     —   3.00   2.00      —   6.00   5.00" in text[2]
    assert text[3] == " — not read then, or folded away with the spans it belonged to"


def test_errors_have_a_column_only_where_there_are_some():
    rows = (scripted.phase(0, "eval", "", True, errors=2),)

    with_errors, without = table_text(scripted.with_phases(phases=rows), 90), scripted.with_phases()

    assert with_errors[0][1].endswith("median err")
    assert with_errors[0][2].endswith("22 ms   2")
    assert "err" not in table_text(without, 90)[0][1]


def test_small_models_are_not_shown_as_nothing():
    small = {
        name: 3 * MIB
        for name in PhaseRow.__struct_fields__
        if name.endswith(("allocated_bytes", "reserved_bytes"))
    }

    text, _ = table_text(scripted.with_phases(phases=(scripted.phase(0, "forward", "", True, **small),)), 90)

    assert text[2].count("0.0029") == 6


def test_a_process_without_rank_or_known_card_is_named_by_what_is_known():
    rows = (scripted.phase(0, "forward", "", True, rank=None, ordinal=3),)

    text, _ = table_text(scripted.with_phases(phases=rows), 100)

    assert text[2].startswith(" pid 4700 forward cuda:3 cold ")


def test_a_run_whose_peaks_do_not_grow_says_so_once_enough_spans_were_seen():
    flat = [
        scripted.phase(0, name, "Bert", False, end_growth_bytes=0, peak_growth_bytes=0, growth_spans=64)
        for name in ("forward", "eval")
    ]
    told, _ = table_text(scripted.with_phases(phases=tuple(flat)), 80)
    few, _ = table_text(scripted.with_phases(), 80)

    assert " no phase steadily needs or leaves more from span to span (the latest 64)" in told
    assert not any("steadily" in line for line in few)


def test_a_growth_has_a_column_only_where_there_is_one_and_says_over_how_many_spans():
    growing = scripted.phase(
        0, "eval", "Bert", False, end_growth_bytes=12 * MIB, peak_growth_bytes=0, growth_spans=64
    )
    steady = scripted.phase(0, "forward", "Bert", False, end_growth_bytes=0, peak_growth_bytes=0)

    text, _ = table_text(scripted.with_phases(phases=(steady, growing)), 100)

    assert text[1].endswith(" median    growth")
    assert text[2].endswith(" 3 ms")
    assert text[3].endswith(" 3 ms +12.0 MiB")
    assert text[4] == " growth: a span, over the latest 64"
    assert "growth" not in "".join(table_text(scripted.with_phases(), 100)[0])


def spread_text(rows, cells=80):
    lines = phasepanels.spread_lines(scripted.with_phases(60, 4, phases=tuple(rows)), cells)
    return [plain(line).rstrip() for line in lines]


def test_ranks_are_compared_by_who_needs_most_and_who_least():
    rows = [
        scripted.phase(
            rank, "forward", "Bert", False,
            peak_allocated_bytes=(3 + rank % 3) * GIB, peak_reserved_bytes=6 * GIB, exact=rank != 1,
        )
        for rank in range(4)
    ]  # fmt: skip

    assert spread_text(rows) == [
        "                   peak allocated GiB        peak reserved GiB",
        "                     most rank   least rank    most rank   least rank",
        " forward Bert warm  ≥5.00 2      ≥3.00 0      ≥6.00 0      ≥6.00 all",
    ]
    assert "reserved" not in "".join(spread_text(rows, 60))


def test_a_single_rank_is_compared_with_nobody():
    assert spread_text([scripted.phase(0, "forward", "Bert", False)]) == []


def test_ranks_that_have_had_their_first_span_only_are_compared_by_it():
    rows = [scripted.phase(rank, "forward", "Bert", True) for rank in (0, 1)]

    assert spread_text(rows)[2].startswith(" forward Bert cold")


def test_parts_say_their_dtypes_and_how_much_is_of_which():
    state = scripted.with_phases()
    dtypes = (
        ("parameters", "bfloat16", GIB),
        ("optimizer state", "float32", GIB // 2),
        ("optimizer state", "bfloat16", GIB + GIB // 2),
    )
    rank = msgspec.structs.replace(state.ranks[0], composition=(scripted.composition(dtypes=dtypes),))

    text = printed.render(msgspec.structs.replace(state, ranks=(rank,)))

    assert "storages, each once, bfloat16\n" in text
    assert "  bfloat16 1.50, float32 0.50\n" in text


def test_a_composition_with_a_cache_shows_it_and_an_old_one_says_how_old_it_is():
    state = scripted.with_phases(120)
    old = scripted.composition(20, caches_bytes=GIB, step=40)
    rank = msgspec.structs.replace(state.ranks[0], composition=(old,), step=120)

    text = printed.render(msgspec.structs.replace(state, ranks=(rank,)))

    assert "   ▨ KV cache            1.00 GiB" in text
    assert "   as it was 1 min 40 s ago, after step 40; the rank is at step 120\n" in text
    assert "KV cache" not in printed.render(state)


sizes = st.none() | st.integers(0, 2**45)
rows = st.builds(
    PhaseRow,
    pid=st.integers(1, 4_000_000),
    rank=st.none() | st.integers(0, 4095),
    phase=st.text(max_size=20),
    name=st.text(max_size=40),
    ordinal=st.integers(0, 15),
    cold=st.booleans(),
    count=st.integers(1, 10**9),
    errors=st.integers(0, 10**6),
    duration_ns=st.integers(0, 10**15),
    start_allocated_bytes=sizes,
    start_reserved_bytes=sizes,
    peak_allocated_bytes=sizes,
    peak_reserved_bytes=sizes,
    exact=st.booleans(),
    end_allocated_bytes=sizes,
    end_reserved_bytes=sizes,
    last_ns=st.just(0),
)


@given(st.lists(rows, max_size=6).map(tuple), st.integers(1, 200))
def test_any_table_fills_its_width_and_shows_every_row(phases, cells):
    table = phasepanels.phase_table(scripted.with_phases(phases=phases), cells)

    assert {line_width(line) for line in (*table.head, *table.rows)} == {cells}
    assert len(table.rows) >= max(1, len(phases))


def test_a_rank_that_is_gone_is_in_no_phase():
    gone = scripted.rank(0, 60, life=Life.LOST, spans=())
    idle = scripted.rank(1, 60, spans=())

    text = [
        plain(line).rstrip()
        for line in phasepanels.current_lines(scripted.picture(60, ranks=(gone, idle)), 80)
    ]

    assert text == [
        "   rank 0  step 120  2/s  gone without a word",
        "   rank 1  step 120  2/s  between phases",
    ]


# --- what allocated is made of, and inputs ----------------------------------------------------------


def test_composition_is_a_bar_of_its_own_textures_and_its_parts():
    text = [plain(line).rstrip() for line in phasepanels.composition_lines(scripted.with_phases(), 80)]

    assert text == [
        " rank 0  GPU 0: 8.75 GiB allocated after step 118",
        " ▦▦▦▦▦▦▦▦▦▧▧▧▧▤▤▤▤▤▤▤▤▤▤▤▤▤▤▤▤▤▤▥▥" + "▫" * 45,
        " ▦ parameters   1.00  ▧ gradients    0.50  ▤ optimizer state   2.00",
        " ▥ buffers      0.25  ▫ other live   5.00  GiB",
    ]


def test_a_walk_that_ran_out_of_time_gives_lower_bounds_and_no_rest():
    one = scripted.composition(complete=False, other_bytes=None)
    state = scripted.with_phases(ranks=(scripted.rank(0, 60, composition=(one,)),))

    text = "\n".join(plain(line) for line in phasepanels.composition_lines(state, 120))

    assert "▦ parameters  ≥1.00" in text
    assert "▫ other live      —" in text
    assert "the walk over all tensors ran out of time: lower bounds" in text


def test_the_printed_picture_says_what_was_read_and_what_computed():
    text = printed.render(scripted.with_phases())

    assert "   ▦ parameters          1.00 GiB  now        storages, each once\n" in text
    assert "   ▫ other live          5.00 GiB  now        = allocated − the parts above\n" in text
    assert "   rank 0  forward Bert  119 ×  int64[8,512] int64[8,512]\n" in text
    assert "\n no room for: rank\n" in text


def test_the_printed_picture_has_no_part_without_content():
    text = printed.render(scripted.picture(60))

    for head in ("\n phases\n", "what allocated is made of", "inputs of root modules"):
        assert head not in text


@pytest.mark.parametrize("cells", [20, 40, 80, 200])
@pytest.mark.parametrize("state", [scripted.with_phases(60, 3), scripted.opaque(), over()])
def test_printed_phases_keep_to_their_width_and_to_ascii(state, cells):
    text = printed.render(state, cells=cells, ascii=True)

    assert text.isascii()
    assert max(len(line) for line in text.splitlines()) <= cells


# --- JSON -----------------------------------------------------------------------------------------


def test_json_has_every_field_of_every_phase_in_raw_bytes():
    state = scripted.with_phases(phases=(scripted.phase(0, "eval", "", False, start_allocated_bytes=None),))

    (row,) = json.loads(jsonview.render(state))["phases"]

    assert set(row) == set(PhaseRow.__struct_fields__)
    assert row["peak_allocated_bytes"] == 3 * GIB
    assert row["start_allocated_bytes"] is None
    assert row["cold"] is False


def test_json_keeps_composition_and_inputs_as_they_come():
    (rank,) = json.loads(jsonview.render(scripted.with_phases()))["ranks"]

    assert rank["composition"][0]["optimizer_bytes"] == 2 * GIB
    assert rank["inputs"][0]["input"] == "int64[8,512] int64[8,512]"


def test_json_says_which_moment_the_ledgers_show():
    run = json.loads(jsonview.render(over()))["run"]

    assert run["moment"] == "at the out-of-memory error of rank 0"
    assert run["moment_ns"] == scripted.START + 58 * SECOND


# --- the moment, skew, and allocators that cannot be read ---------------------------------------------


def test_an_ended_run_prints_which_moment_its_ledgers_show():
    state = over()
    at = present.wall_clock(state.facts, state.facts.moment_ns)

    assert f"\n ledgers: at the out-of-memory error of rank 0, {at}\n" in printed.render(state)
    assert "ledgers:" not in printed.render(scripted.picture(60))


def test_the_header_shows_the_moment_where_there_is_room_and_the_events_where_not():
    wide = plain(panels.header(over(), 160, moment=True))
    narrow = plain(panels.header(over(), 80, moment=True))

    assert "ledgers: at the out-of-memory error of rank 0" in wide
    assert "ledgers" not in narrow
    assert "ledgers: at the out-of-memory error of rank 0" in plain(panels.event_lines(over(), 80)[0])


def skewed(skew_ns, *, steady):
    state = scripted.picture(60)
    reading = DriverReading(
        state.now_ns,
        24 * GIB,
        19 * GIB,
        GIB,
        processes_t_ns=state.now_ns,
        processes=(DriverProcess(4700, 4 * GIB),),
    )
    ours = [Counters(4700, 0, state.now_ns - skew_ns, 2 * GIB, 3 * GIB, steady=steady)]
    return books.ledger(reading, ours, tolerance_ns=300_000_000)


@pytest.mark.parametrize(
    ("skew_ns", "steady", "remarks"),
    [
        (331_000, True, []),
        (331_000, False, ["rank 0: outside: memory was moving while it was read"]),
        (300_000_000, False, ["rank 0: outside: memory was moving while it was read"]),
        (2 * SECOND, True, ["rank 0: outside joins readings 2.0 s apart"]),
        (2 * SECOND, False, ["rank 0: outside joins readings 2.0 s apart"]),
    ],
)
def test_a_skewed_share_says_whether_time_or_movement_is_why(skew_ns, steady, remarks):
    assert present.skew_remarks(skewed(skew_ns, steady=steady)) == remarks


def test_a_process_whose_allocator_cannot_be_read_is_one_term():
    state = scripted.opaque()

    text = [plain(line).rstrip() for line in panels.device_block(state.devices[0], state, 80)]

    assert text[1].count(TEXTURE["opaque"]) == 39
    assert "▩ used  12.00" in text[2]
    assert "▅ allocated      —" in text[2]
    assert "   used by rank 0, allocator not readable" in text
    assert "   allocated, cached, outside: counters unavailable" in text


def test_the_terms_sum_to_the_total_where_an_allocator_cannot_be_read():
    state = scripted.opaque()
    terms = present.device_terms(state.devices[0], state)

    assert sum(term.bytes for term in terms if term.bytes is not None) == 24 * GIB
    assert {term.key: term.bytes for term in terms}["unattributed"] == 0


def test_the_table_of_devices_has_a_column_of_its_own_for_it():
    state = scripted.opaque()

    head, row = (plain(block[0]).rstrip() for block in panels.devices_compact(state, 80))

    assert "▩used" in head
    assert [word for word in row.split() if word != "0.00"][2:6] == ["—", "—", "—", "12.00"]
    assert "▩used" not in plain(panels.devices_compact(scripted.picture(60), 80)[0][0])


def test_json_gives_what_it_uses_and_no_zeros():
    ledger = json.loads(jsonview.render(scripted.opaque()))["devices"][0]["ledger"]
    by_term = {term["term"]: term for term in ledger["terms"]}

    assert by_term["used"]["bytes"] == 12 * GIB
    assert by_term["allocated"]["bytes"] is None
    assert by_term["outside"]["reason"] == "counters unavailable"
    assert sum(term["bytes"] or 0 for term in ledger["terms"]) == ledger["total"]["bytes"]


# --- the chart of a short run -------------------------------------------------------------------------


def test_a_run_of_40_seconds_fills_more_than_half_of_its_chart():
    view = timeline.window(scripted.START, scripted.START + 40 * SECOND, 72, 300)

    assert view.column_of(scripted.START + 40 * SECOND) > view.columns // 2


@given(st.integers(20, 200), st.sampled_from(timeline.SPANS_S[2:-1]))
def test_the_chart_of_a_growing_run_is_rescaled_rarely(columns, span_s):
    seen = {
        timeline.window(scripted.START, scripted.START + second * SECOND, columns, span_s)
        for second in range(span_s + 1)
    }

    assert len(seen) <= 40
    assert all(view.column_ns * view.columns >= timeline.SHORTEST_S * SECOND for view in seen)


def test_spans_of_the_end_alone_say_so():
    state = msgspec.structs.replace(scripted.with_phases(60), unread_before_ns=scripted.START)
    lines, _ = table_text(state, 120)

    assert any(re.match(" spans since about .* still being read", line) for line in lines)

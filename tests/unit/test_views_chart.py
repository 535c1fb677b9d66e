"""Charts, asserted as the characters that people see: windows, curves, phases, axis, cursor."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples
from tui import scripted

from gpumem_tui.analysis.rankstate import Series
from gpumem_tui.analysis.state import SEVERAL, Band
from gpumem_tui.units import GIB
from gpumem_tui.views import bands, chart, curves, present
from gpumem_tui.views.text import plain, to_ascii, width
from gpumem_tui.views.timeline import SPANS_S, Timeline, Window, window

SECOND = scripted.SECOND
START = scripted.START


def timeline(state, *, cursor_s=None, zoom=0, columns=72):
    made = Timeline()
    made.know(START, state.now_ns)
    made.window(columns)
    made.zoom(zoom)
    if cursor_s is not None:
        made.jump(START + int(cursor_s * SECOND))
        made.saw(state.now_ns)
    return made


def drawn(state, cells=80, rows=10, style="texture", **where):
    lines = chart.chart(state.devices[0], state, cells, rows, timeline=timeline(state, **where), style=style)
    return [plain(line) for line in lines]


# --- windows --------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(1, 300), st.sampled_from(SPANS_S))
def test_now_stands_at_the_right_edge_as_soon_as_a_run_fills_the_window(elapsed_s, cells, span_s):
    view = window(START, START + elapsed_s * SECOND, cells, span_s)
    column = view.column_of(START + elapsed_s * SECOND)

    assert 0 <= column < view.columns
    if elapsed_s * SECOND >= view.columns * view.column_ns:
        assert column >= view.columns - max(1, cells // 24)
        assert view.start_ns > START
    else:
        assert view.start_ns == START


@pytest.mark.parametrize("columns", [24, 64, 72, 112, 152, 212])
def test_a_young_run_fills_most_of_its_chart_and_its_axis_seldom_jumps(columns):
    views = [window(START, START + s * SECOND, columns, 300) for s in range(15, 300)]
    filled = [
        view.column_of(START + s * SECOND) / columns for s, view in zip(range(15, 300), views, strict=True)
    ]
    jumps = [s for s in range(1, len(views)) if views[s] != views[s - 1]]

    assert min(filled) > 0.7
    assert len(jumps) <= 16
    assert all(after - before >= 3 for before, after in itertools.pairwise(jumps))


def test_a_window_moves_in_hops():
    starts = {window(START, START + second * SECOND, 72, 300).start_ns for second in range(1000, 1100)}

    assert len(starts) <= 9


@given(st.sampled_from(SPANS_S), st.integers(20, 250))
def test_a_window_is_about_as_long_as_was_asked_for(span_s, columns):
    view = window(START, START + 500_000 * SECOND, columns, span_s)
    wanted = (span_s or 500_000) * SECOND

    assert wanted * 0.99 <= view.columns * view.column_ns <= wanted * 1.34


@given(
    st.integers(10, 10**6),
    st.integers(1, 200),
    st.lists(st.integers(-50, 50), max_size=20),
    st.integers(-7, 7),
)
def test_the_cursor_stays_within_the_run_and_the_window(elapsed_s, columns, moves, zoom):
    line = Timeline()
    line.know(START, START + elapsed_s * SECOND)
    line.window(columns)
    for number, step in enumerate(moves):
        line.move(step)
        if number == len(moves) // 2:
            line.zoom(zoom)
        view = line.window(columns)

        assert line.started_ns <= line.cursor_ns <= line.latest_ns
        assert 0 <= view.column_of(line.cursor_ns) < view.columns


def test_zooming_keeps_the_cursor_where_it_stands_on_screen():
    line = Timeline()
    line.know(START, START + 10_000 * SECOND)
    line.window(72)
    line.jump(START + 5_000 * SECOND)
    before = line.window(72).column_of(line.cursor_ns)
    line.zoom(-2)
    after = line.window(72).column_of(line.cursor_ns)

    assert abs(before - after) <= 3


def test_jumps_go_to_the_neighbours_of_the_cursor_and_say_where_there_is_none():
    line = Timeline()
    line.know(START, START + 100 * SECOND)
    moments = [START + s * SECOND for s in (20, 60)]

    found = [(line.next_of(moments, step), line.cursor_ns) for step in (-1, -1, -1, 1, 1)]

    assert found == [
        (True, moments[1]), (True, moments[0]), (False, moments[0]), (True, moments[1]), (False, moments[1]),
    ]  # fmt: skip


# --- curves ---------------------------------------------------------------------------------------


def test_a_gap_stays_a_gap():
    series = scripted.series(60, lambda _m: GIB, gap=(20, 40))

    found = curves.columns(series, Window(START, SECOND, 60), START + 60 * SECOND)

    assert found[10] == (GIB, GIB, GIB)
    assert found[23:40] == [None] * 17
    assert found[40] == (GIB, GIB, GIB)


def test_a_folded_point_covers_all_its_columns_with_its_bounds():
    series = Series([START], [START + 10 * SECOND], [1], [9], [5])

    found = curves.columns(series, Window(START, SECOND, 12), START + 20 * SECOND)

    assert found[:10] == [(1, 9, 5)] * 10


def test_two_ranks_on_one_card_are_added_only_where_both_are_known():
    one, two = [(1, 5, 2), (1, 5, 2), None], [(1, 9, 3), None, None]

    assert curves.add_curves([one, two]) == [(5, 5, 5), None, None]


def test_the_reading_of_a_moment_is_the_last_one_before_it_and_none_in_a_gap():
    series = scripted.series(60, lambda m: int(m * 10), gap=(20, 40))
    moments = [10.2, 19.9, 30, 40]

    assert [curves.at(series, START + int(m * SECOND)) for m in moments] == [
        (100, 100, 100), (195, 195, 195), None, (400, 400, 400),
    ]  # fmt: skip


# --- phases ---------------------------------------------------------------------------------------


def band(phase, since_s, until_s, depth=1, name=""):
    return Band(1, 0, phase, name, depth, START + int(since_s * SECOND), START + int(until_s * SECOND), None)


def words(*found, columns=10, until_s=10):
    return bands.words(found, Window(START, SECOND, columns), START + until_s * SECOND)


def test_the_innermost_phase_gives_a_column_its_word():
    assert words(band("train", 0, 6, depth=0), band("forward", 1, 3), band("eval", 4, 5)) == [
        "train", "forward", "forward", "train", "eval", "train", "", "", "", "",
    ]  # fmt: skip


def test_columns_in_which_training_takes_turns_are_steps():
    turns = [band(("forward", "backward", "optimizer")[n % 3], n / 9, (n + 1) / 9) for n in range(36)]

    assert words(*turns, columns=4, until_s=4) == ["steps"] * 4


def test_joined_bands_of_training_are_steps_and_others_keep_their_names():
    joined = band(SEVERAL, 0, 3, name="forward, backward"), band(SEVERAL, 3, 5, name="eval, save")

    assert words(*joined, columns=5, until_s=5) == ["steps"] * 3 + ["eval save"] * 2


def test_a_row_of_phases_shows_whole_words_or_their_first_letters():
    row = ["forward"] * 9 + ["backward"] * 3 + [""] * 2 + ["optimizer"]

    assert "".join(span.text for span in bands.row(row, textured=True)) == "Forward──B──  O"


def test_a_word_in_wide_letters_keeps_a_row_of_phases_as_wide_as_its_cells():
    row = ["評価"] * 5 + ["評価する"] * 4 + ["評価"]

    for textured in (True, False):
        assert sum(width(span.text) for span in bands.row(row, textured=textured)) == len(row)


def test_phases_of_training_that_take_turns_from_cell_to_cell_are_steps():
    turns = ["forward", "backward", "backward", "optimizer"] * 3
    row = ["load"] * 4 + turns + ["eval"] * 4 + ["forward"] * 7 + ["backward"]
    live = ["steps"] * 8 + ["forward"]

    assert "".join(span.text for span in bands.row(row, textured=True)) == "LoadSteps───────EvalForwardB"
    assert "".join(span.text for span in bands.row(row, textured=False)) == "loadsteps       evalforward "
    assert "".join(span.text for span in bands.row(live, textured=True)) == "Steps────"


def test_in_colour_a_word_without_room_for_the_whole_of_it_is_left_out():
    row = ["forward"] * 2 + ["backward"] * 7 + ["optimizer"] * 9

    assert "".join(span.text for span in bands.row(row, textured=False)) == f"{'':9}optimizer"
    assert bands.row(row, textured=False)[0].role == "ground/forward"


def test_a_tall_chart_names_the_quarters_of_its_scale():
    tall, low = (
        [line[:6].strip() for line in drawn(scripted.picture(300), rows=rows) if "┤" in line]
        for rows in (23, 9)
    )

    assert tall == ["24.0", "18.0", "12.0", "6.0"]
    assert low == ["24.0", "12.0"]


@pytest.mark.parametrize("rows", range(20, 40))
def test_a_quarter_of_the_scale_is_named_in_the_row_that_it_lies_in(rows):
    plot = [line for line in drawn(scripted.picture(300), rows=rows)[1:] if line[6] in "│┤└"][::-1]
    named = {line[:6].strip(): row for row, line in enumerate(plot) if "┤" in line}

    assert list(named) == ["6.0", "12.0", "18.0", "24.0"]
    for figure, row in named.items():
        assert row < float(figure) / 24 * len(plot) <= row + 1


# --- the whole chart ------------------------------------------------------------------------------


def test_a_chart_without_colour_tells_levels_by_texture():
    lines = drawn(scripted.picture(300), rows=14)
    column = "".join(line[40] for line in lines[1:-2])

    assert lines[0].startswith("── GPU 0  last 5 min ─")
    assert lines[1].startswith("  24.0┤ ▔▔")
    assert "".join(dict.fromkeys(column)) == "▔ ░▓█"
    assert lines[-3].startswith("     0└ ")
    assert lines[-2].startswith(" rank 0 Steps──")
    assert lines[-1].startswith("        ┴")


def test_without_colour_a_low_level_still_stands_in_the_lowest_row():
    low = [scripted.series(60, lambda _m: GIB // 2)]
    state = scripted.picture(60)
    device = msgspec.structs.replace(
        state.devices[0],
        driver_used=scripted.series(60, lambda _m: GIB),
        curves=tuple(
            msgspec.structs.replace(curve, allocated=low[0], reserved=low[0])
            for curve in state.devices[0].curves
        ),
    )
    lines = drawn(msgspec.structs.replace(state, devices=(device,)), rows=6)

    assert "▓" in lines[-3] or "█" in lines[-3]
    assert not {"░", "▓", "█"} & {*lines[-4]}


def test_columns_without_a_reading_are_marked_at_the_foot_of_the_chart():
    assert drawn(scripted.picture(300, gap=(100, 200)))[-3].count("┄") == 22


def test_what_has_not_been_read_yet_is_no_gap():
    state = scripted.picture(300, gap=(0, 200))
    state = msgspec.structs.replace(state, unread_before_ns=START + 200 * SECOND)
    foot = drawn(state, rows=9)[-3]

    assert "still being read" in foot
    assert "┄" not in foot


def test_the_axis_ends_with_now_and_names_no_time_after_it():
    axis = drawn(scripted.picture(45))[-1]

    assert axis.rstrip().endswith("now")
    assert "now" not in axis.rstrip()[:-3]
    assert axis.endswith("  ")


def test_round_times_of_day_stand_where_they_are():
    axis = drawn(scripted.picture(3000), zoom=1)[-1]
    ticks = [place for place, char in enumerate(axis) if char == "┴"]

    assert len({b - a for a, b in itertools.pairwise(ticks)}) <= 2
    assert len({axis[tick + 1 : tick + 6] for tick in ticks[:-1]}) == len(ticks) - 1


def nearly_empty(highest_bytes, seconds=600):
    """A card of 24 GiB whose levels go up to so many bytes and no further."""
    state = scripted.picture(seconds, foreign=0)
    (device,) = state.devices
    level = scripted.series(seconds, lambda second: highest_bytes // (1 + int(second) % 2))
    curve = msgspec.structs.replace(device.curves[0], allocated=level, reserved=level)
    shown = msgspec.structs.replace(device, driver_used=Series.empty(), curves=(curve,))
    return msgspec.structs.replace(state, devices=(shown,))


def test_a_chart_of_a_nearly_empty_card_shows_as_much_of_it_as_its_levels_need_and_says_so():
    lines = drawn(nearly_empty(GIB))

    assert lines[0].startswith("── GPU 0  last 5 min, to 1.50 GiB ─")
    assert lines[1].startswith("  1.50┤ ")
    assert "█" in lines[3]
    assert "▔" not in "".join(lines)  # the card does not end there


@pytest.mark.parametrize("gib", [0.01, 0.3, 1.2, 5.3, 6, 23])
def test_whatever_a_card_holds_fills_a_fifth_of_its_chart_at_least_and_never_all_of_a_near_one(gib):
    state = nearly_empty(int(gib * GIB))
    shown = chart.plot(
        state.devices[0],
        state,
        timeline(state).shown,
        until_ns=state.now_ns,
        cursor_ns=None,
        style="block",
        latest=state,
        close=True,
    )

    share = gib * GIB / shown.top_bytes

    assert share > 0.2
    assert shown.whole == (shown.top_bytes == 24 * GIB)
    assert shown.whole or share <= 0.9


def test_the_cursor_tells_exact_values_phase_and_step():
    state = scripted.picture(3000)
    lines = drawn(state, cursor_s=2900.5)
    allocated, reserved = scripted.levels_at(2900.5, 0)

    assert f"▅ {allocated / GIB:.2f} ▓ {reserved / GIB:.2f} ░ 18.05 GiB" in lines[0]
    assert "train › forward, step 6000" in lines[0]
    assert all(line[lines[-1].index("┃")] == "│" for line in lines[1:-2])


def test_the_chart_and_the_card_mean_the_same_by_device_used():
    state = scripted.picture(300)
    (device,) = state.devices
    at_the_end = plain(chart.readout(device, state, state.now_ns, names=True))

    assert present.device_usage(device).startswith("18.05 of 24.00 GiB used")
    assert "device used 18.05 GiB" in at_the_end


def test_events_and_failures_are_marked_on_the_axis():
    state = scripted.picture(60)

    assert drawn(state)[-1].count("▲") == 1


@given(st.integers(1, 200), st.integers(1, 40), st.sampled_from(chart.STYLES), st.integers(0, 400))
def test_a_chart_is_exactly_as_large_as_its_panel(cells, rows, style, second):
    state = scripted.picture(second % 90, gap=(10, 20))
    where = {"cursor_s": second % 90} if second % 2 else {}
    lines = drawn(state, cells, rows, style, columns=max(1, cells - chart.GUTTER), **where)

    assert len(lines) == rows
    assert {width(line) for line in lines} == {cells}


@given(
    st.integers(0, 400),
    st.lists(st.tuples(st.integers(0, 30), st.integers(8, 13), st.booleans()), min_size=1, max_size=6),
    st.sampled_from(chart.STYLES),
)
@settings(max_examples=examples(30))
def test_a_chart_drawn_again_is_the_chart_drawn_anew(second, pictures, style):
    sheet = chart.Sheet()
    for wait, rows, held in pictures:
        second += wait
        state = scripted.picture(second, gap=(50, 60))
        device, cursor_s = state.devices[0], second * 0.9 if held else None
        again = sheet.draw(device, state, 80, rows, timeline=timeline(state, cursor_s=cursor_s), style=style)
        anew = chart.chart(device, state, 80, rows, timeline=timeline(state, cursor_s=cursor_s), style=style)

        assert again == anew


def test_braille_draws_lines_and_textures_have_ascii_signs():
    braille = "".join(drawn(scripted.picture(300), style="braille"))
    texture = "".join(drawn(scripted.picture(300, gap=(100, 150)), style="texture"))

    assert any("\u2800" < char <= "\u28ff" for char in braille)
    assert "?" not in to_ascii(texture)


def test_the_next_and_the_previous_run_of_a_phase_are_found_beyond_the_window():
    found = [band("load", 0, 10), band("steps", 10, 300), band("eval", 300, 330), band("steps", 330, 900)]
    view = Window(START + 400 * SECOND, SECOND, 50)

    ahead = bands.change_after(found, view, START + 20 * SECOND, START + 900 * SECOND)
    back = bands.change_before(found, view, START + 330 * SECOND, START)

    assert (ahead, back) == (START + 300 * SECOND, START + 300 * SECOND)
    assert bands.change_after(found, view, START + 400 * SECOND, START + 900 * SECOND) is None
    assert bands.change_before(found, view, START + 10 * SECOND, START) == START


def test_where_three_levels_meet_in_one_cell_the_two_largest_are_drawn():
    state = scripted.picture(60)
    eighth = 24 * GIB // 8
    flat = [scripted.series(60, lambda _m, n=n: n * eighth) for n in (3, 7, 8)]
    device = msgspec.structs.replace(
        state.devices[0],
        curves=(msgspec.structs.replace(state.devices[0].curves[0], allocated=flat[0], reserved=flat[1]),),
        driver_used=flat[2],
    )
    lines = chart.chart(device, state, 40, 3, timeline=timeline(state, columns=32))
    (cell,) = {span for span in lines[1] if span.text[0] not in " 2"}

    assert (cell.text[0], cell.role) == ("▃", "allocated/cached")

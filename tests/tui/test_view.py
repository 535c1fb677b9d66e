"""The live view, driven by keys and mouse: what is on screen after each."""

import asyncio
import re

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textual import events
from textual.widgets import Input
from thorough import examples
from tui import scripted
from tui.driven import NARROW, WIDE, View

from gpumem_tui.analysis.state import Event, Severity
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.views.feed import Stop
from gpumem_tui.views.text import width
from gpumem_tui.views.tui.leaving import Left
from gpumem_tui.views.tui.screens.arrange import arrange, arrange_phases
from gpumem_tui.views.tui.themes import PALETTES
from gpumem_tui.views.tui.widgets.lines import Lines


async def test_the_overview_of_one_card_fits_80_by_24():
    async with View(scripted.picture(60)) as view:
        lines = view.screen.splitlines()

    assert len(lines) == 24
    assert lines[0].startswith(" bert-ft  running since ")
    assert lines[1].startswith("── GPU 0  NVIDIA A10G ─")
    assert lines[3].startswith(
        " ▅ allocated   8.90  ▓ cached         2.70  ▒ outside   0.45  ╳ others   6.00"
    )
    assert any("rank 0  GPU 0  step 120   8.90 of 11.60 GiB  train › forward" in line for line in lines)
    assert any("bob     9000    6.00 GiB  +512 MiB/min  jupyter-lab" in line for line in lines)
    assert any("bob's notebook appeared with 6.00 GiB" in line for line in lines)
    assert lines[-1].startswith(" 1 overview  ")
    assert lines[-1] == " 1 overview  2 device  3 phases  4 matrix  5 failure  6 output  7 map  ? help  q"


async def test_sixteen_cards_at_80_by_24_say_what_does_not_fit_and_scroll_to_it():
    async with View(scripted.picture(60, 16)) as view:
        before = view.text("devices")
        await view.press(*["down"] * 15)
        after = view.text("devices")

    assert "7 more devices: ↓  at most 50 % used" in before
    assert after.splitlines()[1].startswith("   7 ")
    assert after.splitlines()[-2].startswith("▸ 15 ")
    assert "7 above: ↑" in after


async def test_the_wheel_moves_the_panel_under_the_pointer():
    async with View(scripted.picture(60, 16)) as view:
        await view.pilot._post_mouse_events([events.MouseScrollDown], "#ranks", button=0)
        await view.settle()

        assert "1 above: ↑" in view.text("ranks")


async def test_a_click_selects_a_card_and_its_chart():
    async with View(scripted.picture(600, 8)) as view:
        await view.pilot.click("#devices", offset=(10, 3))
        await view.settle()

        assert view.app.selected == 2
        assert "GPU 2  last 5 min" in view.text("chart")


async def test_tab_moves_keys_to_the_next_panel():
    async with View(scripted.picture(60, 8)) as view:
        await view.press("tab", "down")

        assert view.text("ranks").startswith("▸  ranks, allocated of reserved ")
        assert "1 above: ↑" in view.text("ranks")
        assert view.app.selected == 0


async def test_wide_terminals_show_the_processes_beside_the_cards():
    async with View(scripted.picture(60, 8), size=WIDE) as view:
        first = view.screen.splitlines()[1]

    assert "GPU 0  NVIDIA A10G" in first
    assert "ranks, allocated of reserved ──" in first


async def test_a_simulated_run_says_so_and_help_tells_what_is_assumed():
    async with View(scripted.simulated(60)) as view:
        header = view.text("header")
        await view.press("question_mark", "end")
        help_text, footer = view.text("help"), view.text("footer")
        await view.press("escape")

        assert header.endswith("SIMULATED 1 × 24 GiB")
        assert "CUDA context: 460 MiB" in help_text
        assert "? close" in footer
        assert view.app.view_name == "overview"


async def test_a_recording_that_stands_in_says_recorded():
    async with View(scripted.picture(60, facts=scripted.facts(recorded=True))) as view:
        assert view.text("header").endswith("RECORDED")


async def test_a_machine_without_driver_shows_the_ranks_and_the_reason():
    async with View(scripted.without_driver()) as view:
        text = view.screen

    assert "▅ allocated   8.90" in text
    assert "others      —" in text
    assert "outside, others, driver, unattributed, free: no driver" in text


async def test_no_card_at_all_is_a_calm_state():
    async with View(scripted.picture(60, 0, ranks=())) as view:
        text = view.screen

    assert "no card is known" in text
    assert "no process of this run has used PyTorch yet" in text


async def test_pause_holds_the_picture_and_says_how_far_behind_it_is():
    async with View(scripted.picture(60), scripted.picture(60), scripted.picture(102)) as view:
        await view.press("space")
        await view.look()
        held, footer = view.text("devices"), view.text("footer")
        await view.press("space")

        assert "allocated   8.90" in held
        assert "behind by 40 s" in footer
        assert "paused at " in footer
        assert held != view.text("devices")


def sent_by(app):
    """What an app sends to its terminal from now on."""
    sent = []
    app._driver.write = sent.append
    return sent


async def test_an_unchanged_picture_draws_nothing():
    async with View(scripted.picture(60, 2)) as view:
        sent = sent_by(view.app)
        await view.look()

        assert sent == []


async def test_a_changed_figure_redraws_only_its_row():
    first = scripted.picture(60)
    async with View(
        first, first, msgspec.structs.replace(first, ranks=(scripted.rank(0, 60, step=121),))
    ) as view:
        row = view.app.query_one("#ranks", Lines).region.y + 1
        sent = sent_by(view.app)
        await view.look()
        await view.look()

    assert re.findall(r"\x1b\[(\d+);\d+H", "".join(sent)) == [f"{row + 1}"]


async def test_q_asks_and_d_detaches():
    async with View(scripted.picture(60)) as view:
        await view.press("q")
        question = view.text("footer")
        await view.press("d")

    assert question == " leave bert-ft?  d detach, the run goes on  s stop the run (SIGINT)  esc stay"
    assert view.app.return_value.left is Left.DETACHED
    assert view.feed.stopped == []


async def test_ctrl_c_asks_like_q_and_escape_stays():
    async with View(scripted.picture(60)) as view:
        await view.press("ctrl+c")
        asked = view.app.asking
        await view.press("escape")

        assert asked
        assert not view.app.asking
        assert view.text("footer").startswith(" 1 overview")


async def test_stopping_gets_harder_each_time_and_the_end_is_watched():
    over = scripted.ended(60)
    running = scripted.picture(60)
    async with View(running, running, over) as view:
        await view.press("q", "s")
        told = view.text("footer")
        await view.press("q")
        harder = view.text("footer")
        await view.press("s")
        await view.look()
        await view.look()
        await view.press("q")

    assert "sent SIGINT to the workload" in told
    assert "stop the run (SIGTERM)" in harder
    assert view.feed.stopped == [Stop.INTERRUPT, Stop.TERMINATE]
    assert view.app.return_value.left is Left.STOPPED


async def test_a_finished_run_has_nothing_to_ask():
    async with View(scripted.ended(60, code=1)) as view:
        header = view.text("header")
        await view.press("q")

    assert header.startswith(" bert-ft  exit code 1, after 1 min 0 s")
    assert view.app.return_value.left is Left.ENDED


async def test_a_feed_that_cannot_read_is_a_line_and_not_the_end():
    error = UnreadableRecording("the recording went away")
    async with View(scripted.picture(60), error=error) as view:
        footer = view.text("footer")
        view.feed.error = None
        await view.look()

        assert "the recording went away" in footer
        assert "the recording went away" not in view.text("footer")


async def test_plus_shows_a_longer_time():
    async with View(scripted.picture(1200)) as view:
        await view.press("plus")

        assert "last 15 min" in view.text("chart")


async def test_a_run_that_is_shown_whole_is_said_to_be():
    async with View(scripted.picture(60)) as view:
        assert "whole run" in view.text("chart")


async def test_ascii_mode_draws_nothing_else():
    async with View(scripted.picture(60, 2), ascii=True) as view:
        assert view.screen.isascii()


async def test_without_colour_no_style_has_a_colour():
    async with View(scripted.picture(60, 2, gap=(10, 20)), palette="mono") as view:
        styles = {s.style for strip in view.app.screen._compositor.render_strips() for s in strip if s.style}

    assert {c.name for style in styles for c in (style.color, style.bgcolor) if c is not None} == {"default"}


async def test_t_goes_through_all_palettes():
    seen = []
    async with View(scripted.picture(60), palette="dark") as view:
        for _ in PALETTES:
            await view.press("t")
            seen.append(view.app.palette.name)

            assert "allocated   8.90" in view.screen

    assert sorted(seen) == sorted(PALETTES)
    assert seen[-1] == "dark"


# --- output ---------------------------------------------------------------------------------------


def log(lines: int) -> bytes:
    return b"".join(b"line %d\r\n" % n for n in range(lines))


async def test_the_output_follows_what_is_printed():
    async with View(scripted.picture(60), output=log(100)) as view:
        await view.press("6")
        view.feed.output += b"\x1b[31mnewest\x1b[0m\r\n"
        await view.look()
        text = view.text("output")

    assert text.splitlines()[-2] == "newest"
    assert text.splitlines()[0] == "line 80"
    assert text.splitlines()[-1] == " following"


async def test_scrolling_up_holds_the_output_and_end_follows_again():
    async with View(scripted.picture(60), output=log(100)) as view:
        await view.press("6", "up")
        view.feed.output += b"newest\r\n"
        await view.look()
        held = view.text("output")
        await view.press("end")

        assert held.splitlines()[0] == "line 78"
        assert "newest" not in held
        assert "more was printed since; End follows" in held
        assert "newest" in view.text("output")


async def test_output_that_fits_is_always_followed():
    async with View(scripted.picture(60), output=log(5)) as view:
        await view.press("6", "up")

        assert view.text("output").splitlines()[-1] == " following"


async def test_a_long_log_is_read_in_windows_and_every_line_can_be_reached():
    count = 60_000
    async with View(scripted.picture(60), output=log(count)) as view:
        await view.press("6")
        seen = []
        for _ in range(3):
            await view.app.views["output"].move(-6_000)
            seen.append(int(view.text("output").splitlines()[0].split()[1]))
        await view.press("home")
        first = view.text("output").splitlines()[0]

    assert seen == [count - 21 - 6_000 * (n + 1) for n in range(3)]
    assert first == "line 0"
    assert max(view.feed.read_sizes) <= 256 * 1024


async def test_a_run_without_output_log_says_why():
    state = scripted.picture(60, facts=scripted.facts(interactive=False), output_bytes=None)
    async with View(state) as view:
        await view.press("6")

        assert "this run was not started on a terminal" in view.text("output")


async def test_a_line_can_be_typed_into_the_workload():
    async with View(scripted.picture(60), output=b"continue? ") as view:
        await view.press("6", "i", *"yes q", "enter")
        await view.settle()
        await view.press("escape")

        assert view.feed.typed == b"yes q\n"
        assert not view.app.query(Input)


# --- phases ---------------------------------------------------------------------------------------


async def test_the_phases_of_one_rank_fit_80_by_24():
    async with View(scripted.with_phases(60)) as view:
        await view.press("3")
        lines = [line.rstrip() for line in view.screen.splitlines()]

    assert lines[1].startswith("── now ─")
    assert lines[2] == "   rank 0  step 120  2/s  train › forward"
    assert lines[3].startswith("▸  phases; no room for rank ─")
    assert lines[5].startswith(
        " phase     name  GPU        n  start   peak    end  start   peak    end median"
    )
    assert lines[6].startswith(
        " forward   Bert  0   cold   1   1.00   3.00   2.00   4.00   6.00   5.00  22 ms"
    )
    assert any(line.startswith(" rank 0  GPU 0: 8.75 GiB allocated after step 118") for line in lines)
    assert any("▦ parameters   1.00  ▧ gradients    0.50  ▤ optimizer state   2.00" in line for line in lines)
    assert any("forward Bert  119 ×  int64[8,512] int64[8,512]" in line for line in lines)
    assert "3 phases " in lines[-1]


async def test_keys_1_2_and_3_switch_screens():
    async with View(scripted.with_phases(60), output=log(3)) as view:
        shown = []
        for key in "3613":
            await view.press(key)
            shown += [v.id for v in view.app.query("#overview, #output, #phases, #help") if v.display]

    assert shown == ["phases", "output", "overview", "phases"]


async def test_without_a_finished_phase_the_screen_says_so_and_shows_no_empty_panel():
    async with View(scripted.picture(60)) as view:
        await view.press("3")
        text = view.screen

    assert "no phase has ended yet" in text
    assert "what allocated is made of" not in text
    assert "inputs" not in text


async def test_the_phases_of_eight_ranks_scroll_by_keys_under_a_head_that_stays():
    async with View(scripted.with_phases(60, 8)) as view:
        await view.press("3", "end")
        table = view.text("phasetable").splitlines()
        await view.press("home")
        top = view.text("phasetable").splitlines()

    assert table[2] == top[2]
    assert table[-2].startswith(" 7    optimizer 7   warm")
    assert top[3].startswith(" 0    forward")
    assert "more: ↓" in top[0]


async def test_the_wheel_scrolls_the_phases():
    async with View(scripted.with_phases(60, 8)) as view:
        await view.press("3")
        await view.pilot._post_mouse_events([events.MouseScrollDown], "#phasetable", button=0)
        await view.settle()

        assert "1 above: ↑" in view.text("phasetable")


async def test_on_a_tall_terminal_ranks_are_compared_below_the_table():
    async with View(scripted.with_phases(60, 8), size=(80, 50)) as view:
        await view.press("3")
        compared = view.text("compared").splitlines()

    assert "ranks compared" in compared[0]
    assert compared[3].startswith(" forward Bert    warm   3.00 0       3.00 all     6.00 0       6.00 all")


async def test_tab_on_the_phases_moves_keys_to_the_next_panel_that_is_shown():
    async with View(scripted.with_phases(60, 8)) as view:
        await view.press("3", "tab", "down")

        assert view.text("composition").startswith("▸  what allocated is made of ")
        assert "1 above: ↑" in view.text("composition")
        assert "above" not in view.text("phasetable")


async def test_an_unchanged_picture_draws_nothing_on_the_phases():
    async with View(scripted.with_phases(60, 2)) as view:
        await view.press("3")
        sent = sent_by(view.app)
        await view.look()

        assert sent == []


async def test_one_more_span_redraws_only_its_row():
    first = scripted.with_phases(60)
    later = msgspec.structs.replace(
        first, phases=tuple(msgspec.structs.replace(p, count=p.count + (p.count > 1)) for p in first.phases)
    )
    async with View(first, first, first, later) as view:
        await view.press("3")
        table = view.app.query_one("#phasetable", Lines).region
        sent = sent_by(view.app)
        for _ in range(3):
            await view.look()
    rows = [int(row) - 1 for row in re.findall(r"\x1b\[(\d+);\d+H", "".join(sent))]

    assert len(rows) == len(set(rows)) == 3
    assert set(rows) <= set(table.line_range)


@pytest.mark.parametrize("palette", PALETTES)
async def test_the_phases_can_be_drawn_in_every_palette_and_in_ascii(palette):
    async with View(scripted.with_phases(60), palette=palette, ascii=True) as view:
        await view.press("3")
        text = view.screen

    assert text.isascii()
    assert "P parameters   1.00  G gradients    0.50  O optimizer state   2.00" in text


async def test_the_help_explains_what_allocated_is_made_of_and_every_screen():
    pages = []
    async with View(scripted.picture(60), size=WIDE) as view:
        await view.press("question_mark")
        for _ in range(4):
            pages.append(view.text("help"))
            await view.press("pagedown")
    text = "\n".join(pages)

    assert "▤ optimizer    state of optimizers" in text
    assert "▩ used         a rank whose allocator cannot be read" in text
    assert "3           what each phase of the workload took" in text


async def test_the_overview_says_of_when_the_ledgers_of_an_ended_run_are():
    state = scripted.ended(60, code=1)
    facts = msgspec.structs.replace(
        state.facts, moment="at the out-of-memory error of rank 0", moment_ns=scripted.START
    )
    state = msgspec.structs.replace(state, facts=facts)
    told = "ledgers: at the out-of-memory error of rank 0, "
    async with View(state) as narrow, View(state, size=WIDE) as wide:
        texts = [(view.text("header"), view.text("events")) for view in (narrow, wide)]
        await wide.press("3")
        elsewhere = wide.text("header")

    assert [(told in header, told in happened) for header, happened in texts] == [
        (False, True),
        (True, False),
    ]
    assert told not in elsewhere


async def test_each_of_a_few_cards_has_a_chart_of_its_own_where_there_is_room():
    async with View(scripted.with_phases(60, 2), size=WIDE) as view:
        both = [view.text(name).splitlines()[0] for name in ("chart", "chart1")]
        await view.pilot.resize_terminal(160, 30)
        await view.press("down")
        alone = view.text("chart").splitlines()[0]

        assert [title[:8] for title in both] == ["── GPU 0", "── GPU 1"]
        assert alone.startswith("── GPU 1")
        assert not view.app.query_one("#chart1").display


async def test_the_cursor_stands_in_every_chart():
    async with View(scripted.with_phases(60, 2), size=WIDE) as view:
        await view.click("#chart1", 40, 5)
        axes = [view.text(name).splitlines()[-1] for name in ("chart", "chart1")]

        assert [axis.index("┃") for axis in axes] == [40, 40]


async def test_a_bar_does_not_touch_its_terms_where_there_is_room():
    found = []
    for size in (NARROW, (120, 40), WIDE):
        async with View(scripted.with_phases(60, 2 if size != NARROW else 1), size=size) as view:
            found.append(view.text("devices").splitlines()[2])

    assert found[0].startswith(" ▅ allocated")
    assert found[1:] == ["", ""]


async def test_a_wide_terminal_has_composition_and_history_beside_the_phases():
    async with View(scripted.with_phases(60, 2), size=WIDE) as view:
        await view.press("3")
        lines = view.screen.splitlines()

        assert re.search("── now ─.*── what allocated is made of ─", lines[1])
        assert any(re.search("^ [01] .*── GPU 0  whole run ─", line) for line in lines)
        assert view.app.query_one("#phasetable", Lines).size.width < 110


async def test_a_wide_terminal_has_the_phases_of_a_card_beside_it():
    async with View(scripted.with_phases(60, 2), size=WIDE) as view:
        await view.press("2", "down")
        title, _, head, *rows = view.text("devicephases").splitlines()

        assert title.startswith("── phases; no room for ")
        assert head.split()[:2] == ["phase", "GPU"]
        assert {row.split()[1] for row in rows if "cold" in row or "warm" in row} == {"1"}


async def test_before_a_phase_has_ended_its_table_has_half_of_a_wide_terminal():
    async with View(scripted.picture(60, 2), size=WIDE) as view:
        await view.press("3")

        assert "no phase has ended yet" in view.text("phasetable")
        assert view.app.query_one("#phasetable", Lines).size.width == 80
        assert view.app.query_one("#phaseschart").display


async def test_the_history_beside_the_phases_has_the_cursor():
    async with View(scripted.with_phases(60, 2), size=WIDE) as view:
        await view.press("3", "left", "left")

        assert "┃" in view.text("phaseschart").splitlines()[-1]


async def test_without_room_beside_the_table_nothing_stands_there():
    async with View(scripted.with_phases(60, 2), size=(138, 50)) as view:
        await view.press("3")

        assert not view.app.query_one("#phaseschart").display
        assert view.text("composition").splitlines()[0].endswith("─" * 60)


# --- sizes ----------------------------------------------------------------------------------------


@given(
    st.integers(1, 220),
    st.integers(0, 80),
    st.lists(st.integers(4, 7), max_size=16),
    st.integers(0, 20),
    st.integers(0, 40),
    st.integers(0, 300),
)
def test_panels_never_get_more_rows_than_there_are(cells, height, blocks, ranks, processes, happened):
    plan = arrange(cells, height, blocks, ranks, processes, happened)
    side = plan.ranks + plan.processes + plan.events

    assert min(plan.devices, plan.chart, plan.ranks, plan.processes, plan.events) >= 0
    assert plan.devices + plan.chart + (0 if plan.wide else side) <= height
    assert side <= height


@given(st.integers(0, 80), *[st.integers(0, 300)] * 2, st.tuples(*[st.integers(0, 300)] * 3))
def test_panels_of_phases_never_get_more_rows_than_they_want(height, ranks, table, others):
    plan = arrange_phases(height, ranks, table, *others)
    wants = (1 + ranks, max(3, 1 + table), *(1 + count if count else 0 for count in others), 0)

    assert sum(plan) <= height
    assert all(0 <= rows <= want for rows, want in zip(plan, wants, strict=True))
    assert plan.table >= min(height, 1 + table, 4)


@given(st.integers(4, 80), *[st.integers(0, 300)] * 2, st.tuples(*[st.integers(0, 300)] * 3))
def test_two_columns_of_phases_each_have_the_whole_height(height, ranks, table, others):
    plan = arrange_phases(height, ranks, table, *others, beside=True)

    assert plan.now + plan.table + plan.compared <= height
    assert plan.composition + plan.inputs + plan.chart <= height
    assert plan.chart == 0 or plan.chart == height - plan.composition - plan.inputs >= 10


@pytest.mark.parametrize("name", ["overview", "device", "phases", "output", "help"])
@settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60)), min_size=1, max_size=4),
    count=st.integers(0, 16),
)
def test_any_terminal_size_can_be_drawn(name, sizes, count):
    async def drive():
        event = Event(scripted.START, Severity.FAILURE, "x" * 300)
        state = scripted.with_phases(60, count, events=(event,) * 40)
        async with View(state, size=(1, 1), output=log(50)) as view:
            await view.app.go_to(name)
            await view.app.action_pause()
            for cells, rows in sizes:
                await view.pilot.resize_terminal(cells, rows)
                await view.look()
                lines = view.screen.splitlines()

                assert len(lines) <= rows
                assert max(map(width, lines), default=0) <= cells

    asyncio.run(drive())


async def test_one_card_at_80_by_24_shows_its_whole_ledger_and_no_panel_without_contents():
    async with View(scripted.with_phases(60)) as view:
        await view.press("2")
        ledger, screen = view.text("ledger"), view.screen

    assert "free" in ledger
    assert "= total" in ledger
    assert "more: ↓" not in ledger
    assert "what allocated is made of" not in screen
    assert "what changed" in screen
    assert "── processes " in screen


async def test_one_card_shows_what_allocated_is_made_of_where_all_of_it_has_room():
    async with View(scripted.with_phases(60), size=(80, 36)) as view:
        await view.press("2")

        assert "parameters" in view.text("devicecomposition")

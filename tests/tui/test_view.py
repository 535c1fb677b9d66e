"""The live view, driven by keys and mouse: what is on screen after each."""

import asyncio

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from textual import events
from textual.widgets import Input
from tui import scripted
from tui.scripted import ScriptedFeed

from gpumem_tui.analysis.state import Event, Severity
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.views.feed import Stop
from gpumem_tui.views.text import Span, width
from gpumem_tui.views.tui.app import Left, MonitorApp
from gpumem_tui.views.tui.screens.arrange import arrange, arrange_phases
from gpumem_tui.views.tui.themes import PALETTES
from gpumem_tui.views.tui.widgets.lines import Lines, changed

NARROW, WIDE = (80, 24), (160, 50)


class View:
    """An app on a scripted feed under a pilot, and what stands on its screen."""

    def __init__(self, *pictures, size=NARROW, output=b"", error=None, palette="dark", ascii=False):
        self.feed = ScriptedFeed(*pictures, output=output, error=error)
        self.app = MonitorApp(self.feed, palette=PALETTES[palette], ascii=ascii, interval_s=3600)
        self.context = self.app.run_test(size=size)

    async def __aenter__(self):
        self.pilot = await self.context.__aenter__()
        await self.look()
        return self

    async def __aexit__(self, *error):
        await self.context.__aexit__(*error)

    async def look(self):
        await self.app.look()
        await self.settle()

    async def settle(self):
        await self.pilot.pause()
        await self.pilot.pause()

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.settle()

    def text(self, name):
        return self.app.query_one(f"#{name}", Lines).text

    @property
    def screen(self):
        """Everything as the compositor would draw it."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)


async def test_the_overview_of_one_card_fits_80_by_24():
    async with View(scripted.picture(60)) as view:
        lines = view.screen.splitlines()

    assert len(lines) == 24
    assert lines[0].startswith(" bert-ft  running since ")
    assert lines[1].startswith("── GPU 0  NVIDIA A10G ─")
    assert lines[3].startswith(
        " █ allocated   8.90  ▓ cached         2.70  ▒ outside   0.45  ╳ others   6.00"
    )
    assert any("rank 0  GPU 0  step 120   8.90 of 11.60 GiB  train › forward" in line for line in lines)
    assert any("bob     9000    6.00 GiB  +512 MiB/min    jupyter-lab" in line for line in lines)
    assert any("bob's notebook appeared with 6.00 GiB" in line for line in lines)
    assert lines[-1] == " 1 overview  2 output  3 phases  ? help  space pause  q leave"


async def test_sixteen_cards_at_80_by_24_say_what_does_not_fit_and_scroll_to_it():
    async with View(scripted.picture(60, 16)) as view:
        before = view.text("devices")
        await view.press(*["down"] * 15)
        after = view.text("devices")

    assert "7 more devices: ↓" in before
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

        assert view.text("ranks").startswith("▸  ranks ")
        assert "1 above: ↑" in view.text("ranks")
        assert view.app.selected == 0


async def test_wide_terminals_show_the_processes_beside_the_cards():
    async with View(scripted.picture(60, 8), size=WIDE) as view:
        first = view.screen.splitlines()[1]

    assert "GPU 0  NVIDIA A10G" in first
    assert "ranks ──" in first


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

    assert "█ allocated   8.90" in text
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
        assert "40 s behind" in footer
        assert "paused at " in footer
        assert held != view.text("devices")


async def test_an_unchanged_picture_draws_nothing():
    async with View(scripted.picture(60, 2)) as view:
        drawn = []
        for lines in view.app.query(Lines):
            lines.refresh = lambda *regions, name=lines.id, **_: drawn.append(name)
        await view.look()

        assert drawn == []


async def test_a_changed_figure_redraws_only_its_cells():
    first = scripted.picture(60)
    async with View(
        first, first, msgspec.structs.replace(first, ranks=(scripted.rank(0, 60, step=121),))
    ) as view:
        regions = []
        ranks = view.app.query_one("#ranks", Lines)
        ranks.refresh = lambda *dirty, **_: regions.extend(dirty)
        await view.look()
        await view.look()

    assert [(r.x, r.y, r.width, r.height) for r in regions] == [(25, 1, 1, 1)]


async def test_q_asks_and_d_detaches():
    async with View(scripted.picture(60)) as view:
        await view.press("q")
        question = view.text("footer")
        await view.press("d")

    assert question == " leave bert-ft?   d detach, the run goes on   s stop the run (SIGINT)   esc stay"
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


@pytest.mark.parametrize("palette", PALETTES)
async def test_t_goes_through_all_palettes(palette):
    async with View(scripted.picture(60), palette=palette) as view:
        for _ in PALETTES:
            await view.press("t")

        assert view.app.palette.name == palette
        assert "allocated   8.90" in view.screen


# --- output ---------------------------------------------------------------------------------------


def log(lines: int) -> bytes:
    return b"".join(b"line %d\r\n" % n for n in range(lines))


async def test_the_output_follows_what_is_printed():
    async with View(scripted.picture(60), output=log(100)) as view:
        await view.press("2")
        view.feed.output += b"\x1b[31mnewest\x1b[0m\r\n"
        await view.look()
        text = view.text("output")

    assert text.splitlines()[-2] == "newest"
    assert text.splitlines()[0] == "line 80"
    assert text.splitlines()[-1] == " following"


async def test_scrolling_up_holds_the_output_and_end_follows_again():
    async with View(scripted.picture(60), output=log(100)) as view:
        await view.press("2", "up")
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
        await view.press("2", "up")

        assert view.text("output").splitlines()[-1] == " following"


async def test_a_long_log_is_read_in_windows_and_every_line_can_be_reached():
    count = 60_000
    async with View(scripted.picture(60), output=log(count)) as view:
        await view.press("2")
        seen = []
        for _ in range(3):
            await view.app.output.move(-6_000)
            seen.append(int(view.text("output").splitlines()[0].split()[1]))
        await view.press("home")
        first = view.text("output").splitlines()[0]

    assert seen == [count - 21 - 6_000 * (n + 1) for n in range(3)]
    assert first == "line 0"
    assert max(view.feed.read_sizes) <= 256 * 1024


async def test_a_run_without_output_log_says_why():
    state = scripted.picture(60, facts=scripted.facts(interactive=False), output_bytes=None)
    async with View(state) as view:
        await view.press("2")

        assert "this run was not started on a terminal" in view.text("output")


async def test_a_line_can_be_typed_into_the_workload():
    async with View(scripted.picture(60), output=b"continue? ") as view:
        await view.press("2", "i", *"yes q", "enter")
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
    assert lines[-1] == " 1 overview  2 output  3 phases  ? help  space pause  q leave"


async def test_keys_1_2_and_3_switch_screens():
    async with View(scripted.with_phases(60), output=log(3)) as view:
        shown = []
        for key in "3213":
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
    assert table[-1].startswith(" 7    optimizer 7   warm")
    assert top[3].startswith(" 0    forward")
    assert "more: ↓" in top[0]


async def test_the_wheel_scrolls_the_phases():
    async with View(scripted.with_phases(60, 8)) as view:
        await view.press("3")
        await view.pilot._post_mouse_events([events.MouseScrollDown], "#phasetable", button=0)
        await view.settle()

        assert "1 above: ↑" in view.text("phasetable")


async def test_tab_on_the_phases_moves_keys_to_the_next_panel_that_is_shown():
    async with View(scripted.with_phases(60, 8)) as view:
        await view.press("3", "tab", "down")

        assert view.text("composition").startswith("▸  what allocated is made of ")
        assert "1 above: ↑" in view.text("composition")
        assert "above" not in view.text("phasetable")


async def test_an_unchanged_picture_draws_nothing_on_the_phases():
    async with View(scripted.with_phases(60, 2)) as view:
        await view.press("3")
        drawn = []
        for lines in view.app.query(Lines):
            lines.refresh = lambda *regions, name=lines.id, **_: drawn.append(name)
        await view.look()

        assert drawn == []


async def test_one_more_span_redraws_only_its_count():
    first = scripted.with_phases(60)
    later = msgspec.structs.replace(
        first, phases=tuple(msgspec.structs.replace(p, count=p.count + (p.count > 1)) for p in first.phases)
    )
    async with View(first, first, first, later) as view:
        await view.press("3")
        regions = []
        table = view.app.query_one("#phasetable", Lines)
        table.refresh = lambda *dirty, **_: regions.extend(dirty)
        for _ in range(3):
            await view.look()

    assert {(r.x, r.width, r.height) for r in regions} == {(27, 2, 1)}
    assert len(regions) == 3


@pytest.mark.parametrize("palette", PALETTES)
async def test_the_phases_can_be_drawn_in_every_palette_and_in_ascii(palette):
    async with View(scripted.with_phases(60), palette=palette, ascii=True) as view:
        await view.press("3")
        text = view.screen

    assert text.isascii()
    assert "P parameters   1.00  G gradients    0.50  O optimizer state   2.00" in text


async def test_the_help_explains_what_allocated_is_made_of():
    async with View(scripted.picture(60), size=WIDE) as view:
        await view.press("question_mark")
        text = view.text("help")

    assert "▤ optimizer    state of optimizers" in text
    assert "▩ used         a rank whose allocator cannot be read" in text
    assert "3         what each phase of the workload took" in text


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


@given(st.integers(0, 80), *[st.integers(0, 300)] * 4)
def test_panels_of_phases_never_get_more_rows_than_they_want(height, ranks, table, composition, inputs):
    plan = arrange_phases(height, ranks, table, composition, inputs)
    wants = (1 + ranks, max(3, 1 + table), *(1 + count if count else 0 for count in (composition, inputs)))

    assert sum(plan) <= height
    assert all(0 <= rows <= want for rows, want in zip(plan, wants, strict=True))
    assert plan.table >= min(height, 1 + table, 4)


@pytest.mark.parametrize("name", ["overview", "output", "phases", "help"])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60)), min_size=1, max_size=4),
    count=st.integers(0, 16),
)
def test_any_terminal_size_can_be_drawn(name, sizes, count):
    async def drive():
        event = Event(scripted.START, Severity.FAILURE, "x" * 300)
        state = scripted.with_phases(60, count, events=(event,) * 40)
        async with View(state, size=(1, 1), output=log(50)) as view:
            await view.app.action_show(name)
            for cells, rows in sizes:
                await view.pilot.resize_terminal(cells, rows)
                await view.look()
                lines = view.screen.splitlines()

                assert len(lines) <= rows
                assert max(map(width, lines), default=0) <= cells

    asyncio.run(drive())


def test_only_cells_that_differ_are_changed():
    old, new = (Span("abc 1.00 GiB, 漢 5"),), (Span("abc 1.01 GiB, 漢 6"),)

    assert changed(old, new) == [(7, 1), (17, 1)]
    assert changed(new, new) == []
    assert changed((Span("a"),), (Span("a", "warning"),)) == [(0, 1)]

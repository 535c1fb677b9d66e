"""The failure screen and the memory map by keys: what failed, why, and what is missing."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tui import failing, scripted
from tui.test_view import WIDE, View

from gpumem_tui.analysis.failurestate import MapState, Outcome, Part
from gpumem_tui.analysis.snapshot import Block, Segment, Snapshot, Use
from gpumem_tui.errors import BadInput
from gpumem_tui.records.failure import FailureRecord, Tensor
from gpumem_tui.units import MIB
from gpumem_tui.views import failurepanels, memorymappanel
from gpumem_tui.views.failureparts import stack_lines
from gpumem_tui.views.failurepast import past
from gpumem_tui.views.text import TEXTURE, line_width, plain, to_ascii
from gpumem_tui.views.tui.themes import PALETTES
from gpumem_tui.views.tui.widgets.lines import Lines


def text(state, number=0, cells=80):
    lines = failurepanels.failure_lines(state, state.failures[number], cells)
    return "\n".join(plain(line).rstrip() for line in lines)


async def test_80_by_24_shows_who_failed_what_was_asked_and_the_verdict():
    async with View(failing.failed(2)) as view:
        await view.press("5")
        lines = view.screen.splitlines()

    assert lines[1].startswith("▸  failure 1 of 2 ─")
    assert lines[2].startswith("   rank 0 asked GPU 0 for 2.00 GiB in forward of step 118; 0.42 GiB")
    assert lines[4].startswith("   rank 0  GPU 0 (cuda:0)  step 118  train › forward Bert  ")
    assert lines[5] == "   the first cause; it ended the process"
    assert lines[7].startswith("   fragmentation: 3.10 GiB lie idle in 14 segments")
    assert lines[9] == "     try    set expandable_segments:True and change nothing else"
    assert lines[10].startswith("     check  run the same script")
    assert lines[13].startswith("   asked for        2.00 GiB  ███")
    assert lines[14].startswith("   largest hole      610 MiB  ▓▓▓")
    assert lines[17].startswith("── GPU 0  NVIDIA A10G at that instant: 18.05 of 24.00 GiB used")
    assert lines[21].startswith("── what that rests on, and what else it may be ─")


def test_shorter_bars_show_where_the_request_would_end():
    told = text(failing.failed(1))
    asked, hole, idle, free = told[told.index("   asked for") :].splitlines()[:4]

    assert asked.rindex("█") == hole.rindex("│") == free.rindex("│")
    assert idle.count("▓") > asked.count("█")


def test_the_last_seconds_before_it_end_with_the_failure_and_name_the_phases():
    state = failing.failed(2)
    lines = text(state).splitlines()
    start = lines.index("── the last 30 s before it " + "─" * 53)
    plot, phases, axis, key = lines[start + 1 : start + 6], *lines[start + 6 : start + 9]

    assert plot[0].startswith("  24.0┤ ▔")
    assert plot[-1].startswith("     0└ ████")
    assert phases.startswith(" rank 0 ")
    assert {"F─", "B─", "O─"} <= {phases[at : at + 2] for at in range(8, 78)}
    assert axis[79] == "▲"
    assert key.split() == ["▅", "allocated", "▓", "reserved", "░", "device", "used", "GiB"]


def test_nothing_that_came_after_the_failure_is_in_its_last_seconds():
    then = failing.failure(t_ns=scripted.START + 45 * scripted.SECOND)
    short, long = (
        msgspec.structs.replace(scripted.ended(seconds, 1), failures=(then,)) for seconds in (46, 60)
    )

    assert past(short, then, 80) == past(long, then, 80)


def test_a_run_that_fails_at_once_shows_no_more_than_its_life():
    state = failing.failed(2)
    early = msgspec.structs.replace(state.failures[0], t_ns=state.facts.started_ns + 4 * scripted.SECOND)

    assert past(state, early, 80)[0] == "the last 4.0 s before it"


def test_a_failure_of_no_known_device_has_no_last_seconds():
    state = failing.failed(1, failing.failure(device=None))

    assert "before it" not in text(state)


async def test_brackets_go_to_the_next_failure_and_back():
    async with View(failing.failed(3)) as view:
        await view.press("5", "right_square_bracket")
        second = view.text("failed")
        await view.press("left_square_bracket", "left_square_bracket")
        last = view.text("failed")

    assert second.startswith("▸  failure 2 of 3 ")
    assert "a victim of another rank's failure; it ended the process" in second
    assert "no record of its own: a signal leaves none" in second
    assert last.startswith("▸  failure 3 of 3 ")


async def test_tab_jumps_to_the_next_section_and_the_end_shows_what_is_missing():
    async with View(failing.failed(2)) as view:
        await view.press("5", "tab")
        section = view.text("failed").splitlines()[1]
        await view.press("end")
        last = view.text("failed").splitlines()[-1]

    assert section.startswith("── why, and what to try next ─")
    assert last == "   history: not asked for; run --history records it"


async def test_wide_terminals_show_the_evidence_beside_the_verdict():
    async with View(failing.failed(2), size=WIDE) as view:
        await view.press("5")
        first = view.screen.splitlines()[1]
        await view.press("tab")
        focused = view.text("why").splitlines()[0]

    assert first.startswith("▸  failure 1 of 2 ─")
    assert "── what that rests on, and what else it may be ─" in first
    assert focused.startswith("▸  what that rests on, and what else it may be ")


async def test_the_overview_tells_a_failure_and_a_threat_in_one_line():
    async with View(failing.failed(2)) as ended, View(failing.threatened()) as going:
        assert "▲ rank 0 asked GPU 0 for 2.00 GiB in forward of step 118" in ended.text("alert")
        assert ended.text("alert").endswith("  5 why")
        assert "▲ rank 0 grows by 12.0 MiB a step" in going.text("alert")


async def test_a_calm_run_has_no_alert_line():
    async with View(scripted.picture(60)) as view:
        assert not view.app.query_one("#alert").display


async def test_a_run_that_was_interrupted_on_purpose_raises_no_alarm():
    interrupted = failing.failure(kind="exception", record=failing.record(error="KeyboardInterrupt: "))
    async with View(failing.failed(1, interrupted)) as view:
        assert not view.app.query_one("#alert").display
        await view.press("5")
        assert "failure" in view.screen


async def test_a_click_on_the_alert_opens_the_failure():
    async with View(failing.failed(2)) as view:
        await view.pilot.click("#alert", offset=(10, 0))
        await view.settle()

        assert view.app.view_name == "failure"


async def test_before_anything_failed_the_screen_says_so_and_what_threatens():
    async with View(failing.threatened()) as view:
        await view.press("5")
        shown = view.screen

    assert "nothing has failed in this run" in shown
    assert "capacity (possible): rank 0 grows by 12.0 MiB a step" in shown


@pytest.mark.parametrize(
    ("part", "missing"),
    [("pools", "more blocks than the budget"), ("driver", "NVML did not answer in time")],
)
def test_a_part_that_is_missing_is_told_with_its_reason(part, missing):
    record = failing.record(**{part: None, "missing": {part: missing}})
    state = failing.failed(1, failing.failure(record=record))

    assert f"   {part}: {missing}" in text(state)


def test_holes_that_are_not_known_say_why_and_idle_comes_from_the_counters():
    record = failing.record(pools=None, missing={"pools": "more than 200,000 blocks"})
    shown = text(failing.failed(1, failing.failure(record=record)))

    assert "largest hole            —  more than 200,000 blocks" in shown
    assert "idle in pools    3.11 GiB" in shown


def test_a_small_request_says_which_tensors_it_stands_for():
    one = failing.failure(requested_bytes=20 * MIB, record=failing.record(requested_bytes=20 * MIB))

    assert "it stands for any tensor of 1 to 10 MiB" in text(failing.failed(1, one))


def test_tensors_processes_and_the_stack_are_named():
    shown = text(failing.failed(2))

    assert "90.0 MiB  parameters  float32[30522,768]     bert.embeddings.word.weight" in shown
    assert "6.00 GiB  not of this run  pid 9000  jupyter-lab" in shown
    assert "—  not of this run  pid 77  not visible from here" in shown
    stack = shown[shown.index("innermost first") :].splitlines()
    assert stack[1:3] == ["   /home/ada/model.py:203 forward", "   /home/ada/train.py:41 step"]


def test_tensors_that_are_alike_are_told_once_with_how_many_they_are():
    alike = [Tensor(500 * MIB, "other", [8, 512, 32000], "float32")] * 12
    parts = msgspec.structs.replace(failing.record().parts, largest=[*alike, Tensor(MIB, "buffers", [9])])
    shown = text(failing.failed(1, failing.failure(record=failing.record(parts=parts))))

    assert "   12 ×  500 MiB  other    float32[8,512,32000]  no name" in shown
    assert shown.count("float32[8,512,32000]") == 1


def test_of_the_stack_peoples_own_innermost_frame_is_marked_and_libraries_are_short():
    stack = [
        "/home/ada/train.py:88 main",
        "/home/ada/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1794 _call_impl",
        "/home/ada/model.py:203 forward",
        "/home/ada/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py:134 forward",
    ]
    told = stack_lines(failing.record(stack=stack), 80)

    assert [plain(line).strip() for line in told] == [
        "torch/nn/modules/linear.py:134 forward",
        "/home/ada/model.py:203 forward",
        "torch/nn/modules/module.py:1794 _call_impl",
        "/home/ada/train.py:88 main",
    ]
    assert [line[0].role for line in told] == ["dim", "strong", "dim", "text"]


def test_a_failure_of_a_thread_says_that_only_the_thread_ended():
    one = failing.failure(outcome=Outcome.CAUGHT, part=Part.ALONE, thread="Thread-3 (fetch)")

    assert "it ended thread Thread-3 (fetch); the program went on" in text(failing.failed(1, one))


def test_a_caught_failure_says_that_the_program_went_on():
    one = failing.failure(outcome=Outcome.CAUGHT, part=Part.ALONE)

    assert "the program caught it and went on" in text(failing.failed(1, one))


async def test_the_memory_map_shows_the_pools_of_a_failure():
    async with View(failing.failed(2)) as view:
        await view.press("7")
        shown = view.screen

    assert "large ███████▓▓▓·     7  11.0 GiB  8.00 GiB  3.00 GiB       610 MiB  2.61 GiB" in shown


async def test_r_asks_a_run_that_goes_on_for_a_map_and_shows_what_comes():
    pools = failing.failed(2).failures[0].record.pools
    record = FailureRecord(t_ns=scripted.START, kind="map", pid=4700, pools=pools)
    there = MapState(scripted.START, 4700, 0, 0, 0, record, None, 900)
    refused = MapState(scripted.START, 4701, 1, 0, 1, None, "60000 blocks", 5)
    state = scripted.picture(60, 2)
    async with View(state, msgspec.structs.replace(state, maps=(there, refused))) as view:
        await view.press("7", "r")
        asked = view.screen
        await view.look()
        shown = view.screen

    assert view.feed.asked_for_maps == 1
    assert "r asks every rank for a map of its blocks now" in asked
    assert "memory map: rank 0  GPU 0  (cuda:0)" in shown
    assert "large ███████▓▓▓·     7  11.0 GiB" in shown
    assert "no map: 60000 blocks" in shown


async def test_enter_holds_the_other_screens_at_the_moment_of_the_failure():
    async with View(failing.failed(2)) as view:
        await view.press("5", "enter")
        await view.settle()

        assert view.app.view_name == "overview"
        assert view.app.timeline.cursor_ns == failing.AT
        assert "paused at" in view.text("footer")
        await view.press("5")
        assert view.text("failed").startswith("▸  failure 1 of 2")


async def test_the_help_says_what_the_words_of_failure_and_matrix_mean():
    async with View(failing.failed(2), size=(100, 140)) as view:
        await view.press("question_mark")
        told = view.text("help")

    assert "largest hole no request above it fits into the pools" in told
    assert "▒ context      a context alone" in told


def checkered():
    """A 20 MiB segment of 1 MiB blocks of which every second one is live, and an idle one of 40 MiB."""
    blocks = tuple(Block(MIB, Use.LIVE if n % 2 else Use.IDLE) for n in range(20))
    return Snapshot(
        (
            Segment(0, 0, 20 * MIB, 0, True, None, False, blocks),
            Segment(0, 1 << 30, 40 * MIB, 0, True, None, False, (Block(40 * MIB, Use.IDLE),)),
        )
    )


async def test_a_history_is_read_behind_the_picture_and_drawn_block_by_block():
    kept = failing.record(history="failures/4700-0.pickle")
    async with View(failing.failed(1, failing.failure(record=kept))) as view:
        view.feed.snapshot = checkered()
        await view.press("7")
        await view.pilot.pause(0.2)
        lines = view.text("map").splitlines()

    assert lines[8:10] == [
        " every block; a character is 1.00 MiB",
        "   █ live  ▆ mostly live  ▂ mostly idle  · idle  ┆ new segment  ░ freed, in use",
    ]
    assert lines[10].startswith(" large: 60.0 MiB in 2 segments, idle 50.0 MiB, largest hole 40.0 MiB")
    assert lines[11] == "   ┆█·█·█·█·█·█·█·█·█·█┆" + "·" * 39


def test_what_is_stuck_and_what_is_mostly_live_are_told_apart_without_colour_and_in_ascii():
    pools = {TEXTURE[role]: meaning for role, meaning in memorymappanel.MEANINGS}
    blocks = {glyph: meaning for glyph, _, meaning in memorymappanel.MAP_SIGNS}

    assert pools["▓"].endswith("(stuck)")
    assert {*pools} & {*blocks} == {"█", "·"}  # live is live, and idle is idle, in both
    assert len({to_ascii(glyph) for glyph in (*pools, *blocks)}) == len({*pools, *blocks})


async def test_a_history_that_is_refused_says_why():
    kept = failing.record(history="failures/4700-0.pickle")
    async with View(failing.failed(1, failing.failure(record=kept))) as view:
        view.feed.snapshot = BadInput("4700-0.pickle: refused: it wants to run code")
        await view.press("7")
        await view.pilot.pause(0.2)

        assert "no map of its blocks: 4700-0.pickle: refused: it wants to run code" in view.text("map")


async def test_an_unchanged_failure_draws_nothing():
    async with View(failing.failed(2), size=WIDE) as view:
        await view.press("5")
        drawn = []
        for lines in view.app.query(Lines):
            lines.refresh = lambda *regions, name=lines.id, **_: drawn.append(name)
        await view.look()

        assert drawn == []


@pytest.mark.parametrize("palette", PALETTES)
async def test_the_failure_can_be_drawn_in_every_palette_and_in_ascii(palette):
    async with View(failing.failed(2), palette=palette, ascii=True) as view:
        await view.press("5")

        assert view.screen.isascii()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(10, 200), st.sets(st.sampled_from(("pools", "driver", "parts", "settings", "host"))))
def test_every_line_is_as_wide_as_asked_whatever_is_missing(cells, without):
    record = failing.record(**dict.fromkeys(without), missing=dict.fromkeys(without, "x" * 90))
    state = failing.failed(2, failing.failure(record=record), failing.victim(1))

    assert {line_width(line) for line in failurepanels.failure_lines(state, state.failures[0], cells)} == {
        cells
    }

"""Time travel by keys and by mouse; the device screen; a newcomer's paths through every screen."""

import re

import longrun
import msgspec
from textual import events
from tui import scripted
from tui.driven import WIDE, View

from gpumem_tui.analysis.state import Event, Severity
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.session import Recording
from gpumem_tui.views.chart import GUTTER

SECOND, START = scripted.SECOND, scripted.START


def moment(view):
    """Seconds into the run of the picture on screen."""
    return round((view.app.state.now_ns - START) / SECOND, 1)


async def test_scrubbing_back_shows_the_whole_picture_of_then_and_how_far_it_is_behind():
    async with View(scripted.with_phases(600)) as view:
        view.feed.past = scripted.with_phases
        await view.press("left", "left", "shift+left")
        column_ns = view.app.timeline.shown.column_ns
        then = int((600 * SECOND - 12 * column_ns) / SECOND)
        allocated, reserved = scripted.levels_at(then, 0)

        assert moment(view) == round(600 - 12 * column_ns / SECOND, 1)
        assert f"{allocated / scripted.GIB:.2f} of {reserved / scripted.GIB:.2f} GiB" in view.text("ranks")
        assert f"step {then * 2}" in view.text("ranks")
        assert "behind by 50 s" in view.text("footer")


async def test_beside_a_sentence_a_narrow_footer_keeps_to_the_moment_that_is_held():
    async with View(scripted.picture(600)) as narrow, View(scripted.picture(600), size=WIDE) as wide:
        footers = []
        for view in (narrow, wide):
            await view.press("shift+left", "y")
            footers.append(view.text("footer"))

    assert "copied" in footers[0]
    assert re.search(r" paused at [0-9:]{8}$", footers[0])
    assert "behind" not in footers[0]
    assert "behind by " in footers[1]


async def test_end_and_space_come_back_to_now():
    async with View(scripted.picture(600)) as view:
        for key in ("end", "space"):
            await view.press("left")
            held = view.app.paused
            await view.press(key)

            assert held
            assert not view.app.paused
            assert view.app.state is view.app.latest


async def test_a_held_chart_has_a_cursor_with_its_values_and_its_phase():
    async with View(scripted.picture(600)) as view:
        await view.press("left")
        chart = view.text("chart").splitlines()
        column = chart[-1].index("┃")

        assert {line[column] for line in chart[1:-2]} == {"│"}
        assert "GiB" in chart[0]
        assert "train › " in chart[0]


async def test_only_the_stretch_that_the_chart_shows_is_asked_for():
    async with View(scripted.picture(6000)) as view:
        await view.press("minus", "minus", "left")
        cursor, since, until = view.feed.asked[-1]

    assert since <= cursor <= until
    assert until - since < 40 * SECOND


async def test_moves_while_a_picture_is_read_are_answered_by_the_last_one():
    async with View(scripted.picture(600)) as view:
        view.app._seeking = True
        await view.press("left", "left", "left")
        unanswered = list(view.feed.asked)
        view.app._seeking = False
        await view.press("left")

        assert unanswered == []
        assert [asked[0] for asked in view.feed.asked] == [view.app.timeline.cursor_ns]


async def test_a_coarse_picture_is_shown_at_once_and_then_read_thoroughly():
    async with View(scripted.picture(600)) as view:
        view.feed.coarse = True
        await view.press("left")

        assert [asked[0] for asked in view.feed.asked] == [view.app.timeline.cursor_ns] * 2
        assert not view.app.state.coarse


async def test_jumps_go_to_events_phases_and_steps():
    async with View(scripted.picture(90)) as view:
        seen = {}
        for key in ("E", "E", "N", "M", "e"):
            await view.press(key)
            seen.setdefault(key, []).append(moment(view))

    assert seen["E"] == [30, 8]
    assert seen["N"] == [6.5]
    assert seen["M"] == [6]
    assert seen["e"] == [8]


async def test_steps_that_are_known_are_gone_through_without_reading_them_again():
    state = scripted.picture(90)
    train, *_ = state.bands
    half_ns = SECOND // 2
    steps = [
        msgspec.structs.replace(
            train,
            depth=1,
            step=number,
            since_ns=START + number * half_ns,
            until_ns=START + (number + 1) * half_ns,
        )
        for number in range(180)
    ]
    async with View(msgspec.structs.replace(state, bands=(train, *steps))) as view:
        seen = []
        for key in "MMMMMM":
            await view.press(key)
            seen.append(moment(view))
        looked_up = [until - since for _, since, until in view.feed.asked].count(10 * SECOND)

    assert seen == [89.5, 89, 88.5, 88, 87.5, 87]
    assert looked_up == 1


async def test_f_goes_to_the_failure_and_says_where_there_is_none():
    failed = Event(START + 40 * SECOND, Severity.FAILURE, "out of memory", rank=0)
    calm, bad = scripted.picture(90), scripted.picture(90)
    bad = msgspec.structs.replace(bad, events=(*bad.events, failed))
    async with View(bad) as view, View(calm) as other:
        await view.press("F")
        await other.press("F")

        assert moment(view) == 40
        assert "no earlier failure is known" in other.text("footer")
        assert not other.app.paused


async def test_a_picture_that_cannot_be_read_is_a_line_and_the_view_goes_on():
    async with View(scripted.picture(600)) as view:
        view.feed.past_error = UnreadableRecording("the recording went away")
        await view.press("left")
        told = view.text("footer")
        view.feed.past_error = None
        await view.press("left")

        assert "the recording went away" in told
        assert moment(view) < 600


async def test_the_output_goes_on_while_the_picture_is_held():
    async with View(scripted.picture(600), output=b"one\r\n") as view:
        await view.press("left", "6")
        view.feed.output += b"two\r\n"
        await view.look()

        assert "two" in view.text("output")
        assert view.app.paused


async def test_an_ended_run_says_how_long_before_its_end_the_cursor_is():
    async with View(scripted.ended(600, code=1)) as view:
        await view.press("shift+left")

        assert "before the end" in view.text("footer")
        assert "running since" in view.text("header")


async def test_events_that_have_not_happened_are_not_listed_but_marked_on_the_axis():
    async with View(scripted.picture(90)) as view:
        await view.press("E", "E")

        assert "notebook" not in view.text("events")
        assert "▲" in view.text("chart")


# --- mouse ----------------------------------------------------------------------------------------


async def test_a_click_on_the_chart_puts_the_cursor_there_and_dragging_moves_it():
    async with View(scripted.picture(600)) as view:
        await view.pilot.mouse_down("#chart", offset=(GUTTER + 20, 3))
        await view.settle()
        first = view.app.timeline.cursor_ns
        await view.pilot._post_mouse_events([events.MouseMove], "#chart", offset=(GUTTER + 30, 3), button=1)
        await view.pilot.mouse_up("#chart", offset=(GUTTER + 30, 3))
        await view.settle()
        shown = view.app.timeline.shown

        assert shown.column_of(first) == 20
        assert shown.column_of(view.app.timeline.cursor_ns) == 30
        assert view.text("chart").splitlines()[-1].index("┃") == GUTTER + 30


async def test_the_wheel_over_the_chart_changes_how_much_time_it_shows():
    async with View(scripted.picture(6000)) as view:
        for event, shown in ((events.MouseScrollUp, "last 1 min"), (events.MouseScrollDown, "last 5 min")):
            await view.pilot._post_mouse_events([event], "#chart", button=0)
            await view.settle()

            assert shown in view.text("chart")


async def test_early_events_of_a_long_run_are_there_again_in_the_past_and_keys_go_through_them(tmp_path):
    recording = Recording(longrun.write(tmp_path / "r", hours=1, ranks=1, devices=1, seed=1))
    recording.read()
    for second in range(0, 3600, 5):
        recording.happenings.add(longrun.START_NS + second * SECOND, Severity.INFO, f"mark at {second}")
    async with View(scripted.picture(60)) as view:
        view.app.feed = recording
        await view.look()
        now = view.text("events")
        view.app.timeline.jump(longrun.START_NS + 102 * SECOND)
        await view.app.seek()
        await view.settle()
        then = view.text("events")
        await view.press("e")
        after = view.text("events")
        await view.press("E", "E")
        before = view.text("events")

    assert "mark at 100" not in now
    assert "mark at 100" in then.splitlines()[1]
    assert "mark at 105" in after.splitlines()[1]
    assert "mark at 95" in before.splitlines()[1]


# --- the device screen ----------------------------------------------------------------------------


async def test_the_device_screen_shows_one_card_with_source_and_change_at_80_by_24():
    async with View(scripted.with_phases(600, 2)) as view:
        await view.press("down", "enter")
        text, ledger = view.screen, view.text("ledger")
        changes, processes = view.text("changes"), view.text("deviceprocesses")

    assert text.splitlines()[1].startswith("▸  GPU 1  NVIDIA A10G ─")
    assert "allocated_bytes.all.current" in text
    assert "= reserved − allocated of one sample" in ledger
    assert "   ▓ reserved " in changes
    assert "   ▓ reserved        0.00 GiB   11.60\n" in changes + "\n"
    assert "rank 1" in processes
    assert "rank 0" not in processes


async def test_keys_go_to_the_neighbouring_card_or_to_the_panel_that_tab_has_chosen():
    async with View(scripted.with_phases(600, 3)) as view:
        await view.press("2", "down")
        first = view.text("devicebar")
        await view.press("tab", "tab", "down")

        assert "GPU 1" in first
        assert "GPU 1" in view.text("devicebar")
        assert "1 above: ↑" in view.text("changes")


async def test_a_wide_device_screen_stands_in_two_columns():
    async with View(scripted.with_phases(600, 8), size=WIDE) as view:
        await view.press("2")
        lines = view.screen.splitlines()

    assert "GPU 0  NVIDIA A10G" in lines[1]
    assert "what changed since" in lines[1]
    assert any("▦ parameters" in line for line in lines)


async def test_stale_figures_of_a_device_say_how_old_they_are():
    state = scripted.picture(60)
    state = msgspec.structs.replace(state, now_ns=state.now_ns + 30 * SECOND)
    async with View(state) as view:
        await view.press("2")

        assert "30 s ago" in view.text("ledger")


# --- a newcomer's path ----------------------------------------------------------------------------

SCREENS = ("overview", "device", "phases", "matrix", "failure", "output", "map", "help")


def shown(view):
    (name,) = [name for name in view.app.views if view.app.query_one(f"#{view.app.views[name].id}").display]
    return name


async def test_a_newcomer_sees_every_screen_and_the_past_by_keys_that_the_screen_names():
    async with View(scripted.with_phases(600, 2), output=b"hello\r\n") as view:
        seen = [shown(view)]
        while len(seen) < len(SCREENS):
            key = {"help": "?"}.get(SCREENS[len(seen)], str(len(seen) + 1))
            named = f" {key}" in view.text("footer")
            await view.press("question_mark" if key == "?" else key)
            seen.append(shown(view))

            assert named
        help_text = []
        for _ in range(12):
            help_text.append(view.text("help"))
            await view.press("pagedown")
        await view.press("escape", "down", "enter", "space", "left", "end", "q")
        question = view.text("footer")
        await view.press("escape")

    assert tuple(seen) == SCREENS
    for word in ("back in time by a column", "to the next event", "a shorter time in the chart", "esc"):
        assert any(word in page for page in help_text)
    assert "detach" in question


async def test_a_newcomer_sees_every_screen_and_the_past_by_the_mouse_alone():
    async with View(scripted.with_phases(600, 2), output=b"hello\r\n") as view:
        seen = [shown(view)]
        for key in ("2", "3", "4", "5", "6", "7", "?", "1"):
            await view.click("#footer", view.text("footer").index(f" {key} ") + 1)
            seen.append(shown(view))
        await view.click("#devices", 10, 5)
        await view.click("#devices", 10, 5)
        opened = shown(view), view.app.selected
        await view.click("#devicechart", GUTTER + 15, 2)
        held = view.app.paused
        await view.click_text("end now")
        back = not view.app.paused
        await view.click("#footer", view.text("footer").index(" q") + 1)
        question = view.text("footer")
        await view.click_text("stay")

    assert tuple(seen) == (*SCREENS, "overview")
    assert opened == ("device", 1)
    assert held
    assert back
    assert "d detach, the run goes on" in question
    assert not view.app.asking


async def test_a_held_picture_is_read_again_once_the_history_before_it_is_known():
    young = msgspec.structs.replace(scripted.picture(600), unread_before_ns=START + 300 * SECOND)
    async with View(young, young, scripted.picture(600)) as view:
        await view.press("left")
        before = len(view.feed.asked)
        await view.look()
        await view.look()

        assert len(view.feed.asked) == before + 1


async def test_while_the_past_is_shown_the_run_is_looked_at_rarely_and_end_looks_at_once():
    async with View(scripted.picture(60), scripted.picture(60), scripted.picture(102)) as view:
        view.app.interval_s = 1.0
        usual = view.app.pace_s()
        await view.press("space")
        await view.look()
        held, looks = view.app.pace_s(), view.feed.reads
        await view.press("end")

    assert held > usual
    assert view.feed.reads == looks + 1


async def test_a_picture_that_stands_is_not_drawn_again_until_something_is_new():
    first = scripted.picture(60)
    alarming = msgspec.structs.replace(first, events=(*first.events, first.events[-1]))
    async with View(first, first, first, first, alarming) as view:
        await view.press("space")
        drawn = []
        show = view.app.view.show_state
        view.app.view.show_state = lambda state: (drawn.append(state), show(state))[1]
        await view.look()
        await view.look()
        before = len(drawn)
        await view.look()

    assert (before, len(drawn)) == (0, 1)

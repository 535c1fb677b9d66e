"""Keys that come in one packet (a slow line, a pasted text) do what they do one after the other."""

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from textual import events
from textual.keys import key_to_character
from tui import driven, scripted
from unit.toppictures import card, picture, process

from gpumem_tui.analysis.top import Wanted
from gpumem_tui.views.tui.themes import PALETTES
from gpumem_tui.views.tui.top import TopApp
from gpumem_tui.views.tui.widgets.prompt import Prompt

TOP_KEYS = [*"sdmft/ hjkg", "enter", "escape", "up", "down", "backspace", "left", "end"]
RUN_KEYS = [*"12345/:op+-cj y", "enter", "escape", "up", "down", "backspace", "left", "right", "tab"]
STATE = scripted.with_phases(60, 2)


class Cards:
    """Two cards with a few processes; nothing changes."""

    def read(self):
        return picture(
            card(0),
            card(1),
            processes=[
                process(device, pid, command=f"holder{pid}") for device, pid in ((0, 1), (0, 2), (1, 3))
            ],
        )

    def end(self, pid, started_ticks, number):
        return f"{number.name} to {pid}"


def key(name):
    """As the terminal's parser makes it."""
    names = {"/": "slash", ":": "colon", " ": "space", "+": "plus", "-": "minus"}
    return events.Key(names.get(name, name), key_to_character(names.get(name, name)))


async def typed(app, keys, settle, at_once):
    """The line that is being typed after the keys, and what stands on the screen."""
    for name in keys:
        app.post_message(key(name))
        if not at_once:
            await settle()
    for _ in range(3):
        await settle()
    line = next((prompt.value for prompt in app.query(Prompt)), None)
    return line, "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def top_after(keys, at_once):
    app = TopApp(
        Cards(), palette=PALETTES["dark"], ascii=False, wanted=Wanted(), sort="memory", interval_s=3600
    )
    async with app.run_test(size=(100, 24)) as pilot:
        await app.look()
        return await typed(app, keys, pilot.pause, at_once)


async def run_after(keys, at_once):
    async with driven.View(STATE, size=(100, 24)) as view:
        line, shown = await typed(view.app, keys, view.settle, at_once)
        return view.app.view_name, line, shown


def test_a_filter_typed_at_once_behind_another_key_has_every_letter():
    line, shown = asyncio.run(top_after([*"d/holder2"], at_once=True))

    assert line == "holder2"
    assert "with “holder2”" in shown


def test_what_follows_the_end_of_a_line_is_a_key_again():
    line, shown = asyncio.run(top_after([*"/holderx", "backspace", "3", "enter", "s"], at_once=True))

    assert line is None
    assert "by device, with “holder3”" in shown


@settings(max_examples=25)
@example(keys=[*"/holder", "left", "backspace", "enter", *"sd"])
@given(keys=st.lists(st.sampled_from(TOP_KEYS), max_size=14))
def test_top_is_the_same_however_quickly_its_keys_came(keys):
    assert asyncio.run(top_after(keys, at_once=True)) == asyncio.run(top_after(keys, at_once=False))


async def held_after(keys, at_once):
    """Moment, window and screen after keys; and how often a picture of the past was read for them."""
    async with driven.View(scripted.with_phases(1200), size=(100, 24)) as view:
        view.feed.past = lambda second, count: scripted.picture(second % 60, count)
        await typed(view.app, keys, view.settle, at_once)
        timeline = view.app.timeline
        return (timeline.cursor_ns, timeline.shown, view.screen), len(view.feed.asked)


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ([*["left"] * 20, *["shift+left"] * 10], 2),
        ([*["shift+left"] * 12, *["right"] * 12, *["shift+right"] * 3], 2),
        ([*["left"] * 9, *"---", *["left"] * 20, *"+", *["right"] * 9], 4),
        ([*"MMMMmMMMMMMMMMMmmMMMMMMMM", *["right"] * 3, *"mM"], 27),
    ],
    ids=["far back", "back and forth", "across windows", "step by step"],
)
def test_keys_of_a_stalled_line_all_count_and_only_where_they_lead_is_read_and_drawn(keys, most):
    at_once, reads = asyncio.run(held_after(keys, at_once=True))
    one_by_one, _ = asyncio.run(held_after(keys, at_once=False))

    assert at_once == one_by_one
    assert reads <= most


def test_screens_that_the_next_key_leaves_are_not_drawn():
    async def drawn():
        async with driven.View(STATE, size=(100, 24)) as view:
            shown = []
            for name, screen in view.app.views.items():
                show = screen.show_state
                screen.show_state = lambda state, name=name, show=show: (shown.append(name), show(state))[1]
            await typed(view.app, [*"234" * 20, "3"], view.settle, at_once=True)
            return {*shown}, view.app.view_name

    assert asyncio.run(drawn()) == ({"phases"}, "phases")


@settings(max_examples=25)
@example(keys=["3", *"/adam", "enter", *"o:theme", "escape", "2"])
@given(keys=st.lists(st.sampled_from(RUN_KEYS), max_size=14))
def test_the_view_of_a_run_is_the_same_however_quickly_its_keys_came(keys):
    assert asyncio.run(run_after(keys, at_once=True)) == asyncio.run(run_after(keys, at_once=False))

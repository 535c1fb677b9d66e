"""Screens of failure, matrix, map and palette in any terminal, also while it changes its size."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples
from tui import failing, scripted
from tui.test_view import View

from gpumem_tui.views.text import width


@pytest.mark.parametrize("name", ["matrix", "failure", "map", "commands"])
@settings(max_examples=examples(2), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60)), min_size=1, max_size=4),
    count=st.integers(1, 16),
    keys=st.lists(st.sampled_from(("down", "up", "tab", "shift+tab", "pagedown", "end", "home")), max_size=4),
)
def test_any_terminal_size_can_be_drawn_and_walked_through(name, sizes, count, keys):
    async def drive():
        async with View(failing.failed(count), size=(1, 1)) as view:
            await view.app.go_to(name)
            for cells, rows in sizes:
                await view.pilot.resize_terminal(cells, rows)
                await view.press(*keys)
                await view.settle()
                lines = view.screen.splitlines()

                assert len(lines) <= rows
                assert max(map(width, lines), default=0) <= cells

    asyncio.run(drive())


async def test_a_table_too_narrow_for_all_columns_leaves_out_whole_ones():
    async with View(scripted.picture(60, 4), size=(40, 10)) as view:
        head, first = view.text("devices").splitlines()[:2]

    assert head.split() == ["GPU", "▅alloc", "▓cached", "╳others", "·free"]
    assert first.split() == ["▸", "0", "8.90", "2.70", "6.00", "5.45"]


async def test_where_no_card_is_known_the_panels_stand_at_the_top():
    async with View(scripted.picture(60, 0, ranks=())) as view:
        lines = view.screen.splitlines()

    assert lines[1] == "   no card is known"
    assert lines[2].startswith("── ranks ─")


async def test_the_footer_tells_of_help_as_long_as_there_is_room_for_a_word():
    told = []
    for columns in (100, 80, 60, 30):
        async with View(scripted.picture(60), size=(columns, 24)) as view:
            told.append(view.screen.splitlines()[-1])

    assert told[0].endswith("7 map  ? help  space pause  q leave")
    assert told[1].endswith("7 map  ? help  q")
    assert told[2] == " 1 overview  2 3 4 5 6 7 ? help  space pause  q leave"
    assert told[3] == " 1 2 3 4 5 6 7 ? space q"


async def test_arrows_are_words_in_an_ascii_footer_where_they_would_look_like_other_keys():
    async with View(scripted.picture(60), ascii=True) as view:
        await view.press("space")
        held = view.screen.splitlines()[-1]

    assert " left right end now " in held
    assert not {"<", ">"} & {*held}


async def test_the_footer_of_a_run_that_has_ended_offers_nothing_that_needs_it_alive():
    async with View(failing.failed(2), size=(120, 30)) as ended, View(scripted.picture(60)) as going:
        footers = []
        for view in (ended, going):
            for key in ("6", "7"):
                await view.press(key)
                footers.append(view.screen.splitlines()[-1])

    assert not any("i type" in footer or "map now" in footer for footer in footers[:2])
    assert "i type" in footers[2]
    assert "r map now" in footers[3]

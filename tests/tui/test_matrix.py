"""The ranks × GPUs screen by keys and mouse."""

import msgspec
from tui import scripted
from tui.test_view import View
from unit.test_views_matrix import AT, contexts

from gpumem_tui.views.tui.widgets.lines import Lines


async def test_sixteen_ranks_on_sixteen_cards_are_all_in_view_at_80_by_24():
    async with View(contexts(16)) as view:
        await view.press("4")
        lines = view.screen.splitlines()

    assert len(lines) == 24
    assert lines[1].startswith("▸  ranks × GPUs  GiB held  █ its card  ▒ context alone ─")
    assert lines[3] == "▸ rank 0  █ 12" + "   ·" * 15
    assert lines[18] == "  rank 15 ▒.45" + "   ·" * 14 + "█ 12"
    assert lines[21] == "   ranks 1–15 hold a context on GPU 0, 15 × 460 MiB, and nothing reserved in it;"


async def test_keys_walk_over_rows_and_cards_and_the_cell_is_told_in_words():
    async with View(contexts(4)) as view:
        await view.press("4", "down", "down", "tab", "tab")
        chosen = view.text("cellnotes").splitlines()[1]
        await view.press("shift+tab", "shift+tab")
        context = view.text("cellnotes").splitlines()[1]
        await view.press("end", "tab")
        empty = view.text("cellnotes").splitlines()[1]

    assert chosen == f" ▸ rank 2 on GPU 2: 12.0 GiB held, 11.6 GiB reserved, since {AT}; its card"
    assert context.startswith(" ▸ rank 2 on GPU 0: 460 MiB held, — reserved, since ")
    assert empty == " ▸ rank 3 holds nothing on GPU 1; step 120, train › forward"


async def test_a_click_chooses_a_cell():
    async with View(contexts(4)) as view:
        await view.press("4")
        await view.pilot.click("#cells", offset=(30, 4))
        await view.settle()

        assert view.text("cellnotes").splitlines()[1].startswith(" ▸ rank 2 holds nothing on GPU 1")
        assert view.app.selected == 1


async def test_the_chosen_process_stays_chosen_when_others_come_before_it():
    early, late = scripted.picture(60, 4), contexts(4)
    stranger = scripted._row(2, 8000, None, False, "jupyter-lab", "bob", 9 * 2**30)
    late = msgspec.structs.replace(
        late, processes=(*late.processes, stranger, *[p for p in early.processes if not p.ours])
    )
    async with View(early, early, late) as view:
        await view.press("4", "end")
        await view.look()
        await view.look()

        assert "▸ bob 9000" in view.text("cells")


async def test_an_unchanged_matrix_draws_nothing():
    async with View(contexts(8)) as view:
        await view.press("4")
        drawn = []
        for lines in view.app.query(Lines):
            lines.refresh = lambda *regions, name=lines.id, **_: drawn.append(name)
        await view.look()

        assert drawn == []


async def test_the_matrix_reads_in_ascii():
    async with View(contexts(2), ascii=True, palette="mono") as view:
        await view.press("4")
        text = view.screen

    assert text.isascii()
    assert "> rank 0 #  12.05 (11.60)" in text


async def test_without_ranks_and_cards_the_matrix_says_that_nobody_holds_anything():
    async with View(scripted.picture(60, 0, ranks=())) as view:
        await view.press("4", "down", "tab", "end")

        assert "nobody holds a card yet" in view.screen

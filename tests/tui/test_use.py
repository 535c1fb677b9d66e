"""What people do beside looking: commands, filter, order, pin, clipboard, reports, settings."""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from tui import failing, scripted
from tui.test_view import View

from gpumem_tui.units import GIB
from gpumem_tui.views import panels, phasepanels
from gpumem_tui.views.meanings import meaning_at
from gpumem_tui.views.text import TERMS, Span, line_width, plain, to_ascii
from gpumem_tui.views.tui import THEMES
from gpumem_tui.views.tui.registry import ACTIONS
from gpumem_tui.views.tui.screens.help import help_lines
from gpumem_tui.views.tui.settings import Settings, read
from gpumem_tui.views.tui.widgets.prompt import Prompt


def crowded(count=4):
    """A stranger on every card, each newer, larger and faster than the one before."""
    state = scripted.picture(60, count, foreign=0)
    rows = [
        msgspec.structs.replace(
            scripted._row(i, 9000 + i, None, False, f"job{i}", "bob", (i + 1) * GIB, growth=i << 20),
            since_ns=scripted.START + i * scripted.SECOND,
        )
        for i in range(count)
    ]
    return msgspec.structs.replace(state, processes=(*state.processes, *rows))


# --- commands -------------------------------------------------------------------------------------


async def test_a_command_is_found_by_its_words_and_done_by_enter():
    async with View(scripted.picture(60)) as view:
        await view.press("colon", *"ranks gpus")
        listed = view.text("commands").splitlines()
        await view.press("enter")

        assert listed[1].startswith(" ▸ 4           ranks × GPUs: who holds what")
        assert view.app.view_name == "matrix"
        assert not view.app.query(Prompt)


async def test_a_command_that_begins_with_what_is_typed_comes_first():
    async with View(scripted.picture(60)) as view:
        await view.press("colon", *"theme l", "enter")

        assert view.app.palette.name == "light"


async def test_arrows_choose_another_command_and_esc_leaves_the_screen_as_it_was():
    async with View(scripted.picture(60)) as view:
        await view.press("3", "colon", "down", "down", "up")
        marked = [line for line in view.text("commands").splitlines() if line.startswith(" ▸")]
        await view.press("escape")

        assert len(marked) == 1
        assert marked != [view.text("commands").splitlines()[1]]
        assert view.app.view_name == "phases"


async def test_a_click_does_a_command():
    async with View(scripted.picture(60)) as view:
        await view.press("colon", *"theme light")
        await view.pilot.click("#commands", offset=(20, 1))
        await view.settle()

        assert view.app.palette.name == "light"


async def test_words_that_nothing_has_are_answered_calmly():
    async with View(scripted.picture(60)) as view:
        await view.press("colon", *"xyzzy", "enter")

        assert "nothing does that" in view.text("commands")


async def test_the_palette_lists_every_action_that_works_here():
    async with View(scripted.picture(60), size=(100, 70)) as view:
        await view.press("colon")
        text = view.text("commands")
        missing = [
            a.meaning
            for a in ACTIONS
            if a.works_on("overview")
            and not a.action.startswith(("answer", "commands"))
            and a.meaning not in text
        ]

    assert missing == []


# --- rows -----------------------------------------------------------------------------------------


async def test_a_filter_keeps_rows_with_its_word_says_how_many_and_esc_shows_all():
    async with View(crowded(4), size=(160, 50)) as view:
        await view.press("slash", *"job2", "enter")
        filtered = view.text("processes").splitlines()
        await view.press("escape")
        whole = view.text("processes").splitlines()

    assert filtered[0].startswith("── processes on the cards, 1 of 8 with “job2” ")
    assert [line.split()[-1] for line in filtered[1:] if line] == ["job2"]
    assert len(whole) == 9


async def test_a_word_typed_at_once_after_the_key_loses_no_letter():
    async with View(crowded(4), size=(160, 50)) as view:
        for key in ("slash", *"job2"):
            view.app.post_message(events.Key(key, None if key == "slash" else key))
        await view.settle()
        await view.pilot.pause()

        assert "1 of 8 with “job2”" in view.text("processes")


async def test_a_filter_finds_what_a_narrow_screen_cuts_off():
    command = "python " + "x" * 200 + " --needle"
    row = scripted._row(0, 9000, None, False, command, "bob", GIB)
    state = msgspec.structs.replace(scripted.picture(60, 1, foreign=0), processes=(row,))
    async with View(state) as view:
        await view.press("slash", *"needle", "enter")

        assert "1 of 1 with “needle”" in view.text("processes")


async def test_the_filter_works_on_phases_and_on_the_matrix():
    async with View(scripted.with_phases(60, 4)) as view:
        await view.press("slash", *"adamw", "enter", "3")
        phases = view.text("phasetable")
        await view.press("escape", "4", "slash", *"rank 2", "enter")
        matrix = view.text("cells")

    assert "8 of 25 with “adamw”" in phases
    assert [line[:8] for line in matrix.splitlines()[2:]] == ["▸ rank 2"]


@pytest.mark.parametrize(
    ("times", "order", "first"), [(1, "size", "rank 0"), (2, "growth", "job3"), (3, "newest", "job3")]
)
async def test_processes_can_be_ordered(times, order, first):
    async with View(crowded(4), size=(160, 50)) as view:
        await view.press(*["o"] * times)
        heading, row, *_ = view.text("processes").splitlines()

    assert heading.startswith(f"── processes on the cards, by {order} ")
    assert first in row


async def test_a_pinned_card_stays_in_view_while_others_scroll():
    async with View(scripted.picture(60, 16)) as view:
        await view.press("p", *["down"] * 15)
        pinned = view.text("devices")
        await view.press(*["up"] * 15, "p", *["down"] * 15)
        free = view.text("devices")

    assert pinned.splitlines()[1].startswith("   0 ")
    assert "▸ 15 " in pinned
    assert "   0 " not in free


# --- taking along ---------------------------------------------------------------------------------


async def test_y_copies_the_selected_card_to_the_byte():
    async with View(scripted.picture(60)) as view:
        await view.press("y")

        assert view.app.clipboard.splitlines()[0].startswith("GPU 0  NVIDIA A10G: 18.05 of 24.00 GiB")
        assert "others: 6,442,450,944 bytes, 6.00 GiB" in view.app.clipboard
        assert "copied" in view.text("footer")


async def test_y_copies_the_cell_the_failure_and_shift_y_the_whole_screen():
    async with View(failing.failed(2)) as view:
        await view.press("5", "y")
        failure = view.app.clipboard
        await view.press("4", "y")
        cell = view.app.clipboard
        await view.press("Y")
        screen = view.app.clipboard

    assert "set expandable_segments:True and change nothing else" in failure
    assert "/home/ada/train.py:88 main" in failure
    assert cell.startswith("rank 0 on GPU 0: 12.0 GiB held")
    assert len(screen.splitlines()) == 24


@pytest.mark.parametrize(("word", "kind"), [("as text", "txt"), ("page with charts", "html")])
async def test_a_report_of_the_picture_is_saved_and_never_overwrites(tmp_path, monkeypatch, word, kind):
    monkeypatch.chdir(tmp_path)
    async with View(failing.failed(2)) as view:
        for _ in range(2):
            await view.press("colon", *word, "enter")
            await view.pilot.pause(0.2)
        footer = view.text("footer")

    saved = sorted(path.name for path in tmp_path.iterdir())
    assert saved == [f"bert-ft-report-2.{kind}", f"bert-ft-report.{kind}"]
    assert "bert-ft" in (tmp_path / saved[1]).read_text()
    assert (tmp_path / saved[1]).stat().st_mode & 0o777 == 0o600
    assert f"saved ./bert-ft-report-2.{kind}" in footer


async def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    async with View(scripted.picture(60)) as view:
        await view.press("w")
        await view.pilot.pause(0.2)

        assert "cannot save a report: No such file or directory" in view.text("footer")


# --- settings -------------------------------------------------------------------------------------


def remembered(path) -> Settings:
    return read(path, tuple(THEMES), ("card", "size", "growth", "newest"))


async def test_what_is_set_in_the_view_is_remembered(tmp_path):
    path = tmp_path / "gpumem-tui" / "config.toml"
    async with View(scripted.picture(60)) as view:
        view.app.take_settings(Settings(), path)
        view.app.interval_s = 1.0
        await view.press("t", "o", "less_than_sign", "colon", *"low bandwidth", "enter")

    assert remembered(path) == Settings(theme="light", sort="size", interval_s=2.0, low_bandwidth=True)


async def test_low_bandwidth_stretches_the_time_between_pictures():
    async with View(scripted.picture(60)) as view:
        view.app.interval_s = 1.0
        before = view.app.pace_s()
        await view.app.action_low_bandwidth()

        assert (before, view.app.pace_s()) == (1.0, 5.0)


async def test_a_configuration_that_cannot_be_written_is_told_once_and_the_view_goes_on(tmp_path):
    (tmp_path / "gpumem-tui").write_text("a file where a folder should be")
    async with View(scripted.picture(60)) as view:
        view.app.take_settings(Settings(), tmp_path / "gpumem-tui" / "config.toml")
        await view.press("o")

        assert view.app.sort == "size"
        assert view.app.settings_path is None


async def test_while_something_is_typed_the_footer_names_only_the_keys_that_work():
    async with View(scripted.picture(60)) as view:
        await view.press("colon", *"ranks gpus")
        typing = view.text("footer")
        await view.click_text("leave it")
        left = view.text("footer")
        await view.press("colon", *"ranks gpus")
        await view.click_text("do it")
        done = view.app.view_name

    assert typing.rstrip() == " enter do it  esc leave it"
    assert left.startswith(" 1 overview")
    assert done == "matrix"


async def test_the_help_fits_80_columns():
    lines = help_lines(scripted.with_phases(60, 2), ACTIONS)

    assert [plain(line) for line in lines if line_width(line) > 80] == []


async def test_phases_can_be_ordered_by_what_they_take_and_again_by_rank():
    rows = [
        scripted.phase(0, name, "", False, peak_allocated_bytes=peak, duration_ns=time_s * scripted.SECOND)
        for name, peak, time_s in (("forward", 2 * GIB, 3), ("backward", 5 * GIB, 2), ("eval", GIB, 9))
    ]
    state = msgspec.structs.replace(scripted.picture(60), phases=tuple(rows))

    def listed(view):
        found = view.text("phasetable").splitlines()
        return found[0], [row.split()[1] for row in found[3:6]]

    async with View(state) as view:
        await view.press("3")
        usual, usual_rows = listed(view)
        await view.press("o")
        by_peak, by_peak_rows = listed(view)
        await view.press("o")
        by_time, by_time_rows = listed(view)
        await view.press("o", "o")
        again = listed(view)

        assert (by_peak[:17], by_peak_rows) == ("▸  phases by peak", ["backward", "forward", "eval"])
        assert (by_time[:17], by_time_rows) == ("▸  phases by time", ["eval", "forward", "backward"])
        assert again == (usual, usual_rows)
        assert usual_rows == ["forward", "backward", "eval"]
        assert view.app.sort == "card"


async def test_order_and_filter_work_on_the_processes_of_one_card_too():
    row = scripted._row(0, 9900, None, False, "late-job", "bob", GIB, growth=5 << 20)
    state = scripted.picture(60, 1)
    state = msgspec.structs.replace(state, processes=(*state.processes, row))
    async with View(state, size=(160, 50)) as view:
        await view.press("2", "o")
        ordered = view.text("deviceprocesses").splitlines()[0]
        await view.press("slash", *"late-job", "enter")
        filtered = view.text("deviceprocesses").splitlines()

    assert ordered.startswith("── processes, by size ")
    assert "1 of 3 with “late-job”" in filtered[0]
    assert "late-job" in filtered[1]


async def test_a_screen_without_an_order_says_so():
    async with View(scripted.picture(60)) as view:
        await view.press("4", "o")

        assert "nothing on this screen has an order" in view.text("footer")
        assert view.app.sort == "card"


# --- what a term means ----------------------------------------------------------------------------


async def test_a_pointer_that_rests_on_a_term_has_it_explained_until_it_goes():
    async with View(scripted.picture(60)) as view:
        keys = view.text("footer")
        at = view.text("devices").splitlines()[2].index("cached") + 2
        await view.pilot.hover("#devices", offset=(at, 2))
        passing = view.text("footer")
        await wait_for(lambda: view.app.explained)
        resting = view.text("footer")
        await view.pilot.hover("#ranks", offset=(2, 0))
        await view.settle()

        assert passing == keys
        assert resting.rstrip() == " cached: reserved by PyTorch's allocator, in no live tensor"
        assert view.text("footer") == keys


async def wait_for(holds):
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("allocated   8.90", "allocated: live tensors"),
        ("8.90", "allocated: live tensors"),
        ("free", "free: free, as the driver says"),
        ("GiB", ""),
    ],
)
def test_a_term_is_explained_by_its_glyph_its_name_and_its_figure(word, meaning):
    state = scripted.picture(60)
    rows = panels.device_block(state.devices[0], state, 80)
    line = next(row for row in rows[2:] if word in plain(row))

    assert meaning_at(line, plain(line).index(word)).startswith(meaning)
    assert bool(meaning_at(line, plain(line).index(word))) == bool(meaning)


def test_every_column_of_a_phase_with_a_word_of_its_own_is_explained():
    head = phasepanels.phase_table(scripted.with_phases(60), 160).head[1]
    text = plain(head)

    told = {word: meaning_at(head, text.index(word)) for word in ("start", "peak", "end", "rank")}

    assert told["peak"].startswith("peak: the highest of all spans")
    assert told["start"].startswith("start: levels of the latest span")
    assert told["end"].startswith("end: levels of the latest span")
    assert told["rank"] == ""


@given(
    line=st.lists(st.tuples(st.text(max_size=4), st.sampled_from(["dim", "text", *TERMS]))),
    cell=st.integers(),
)
def test_any_cell_of_any_line_can_be_asked(line, cell):
    told = meaning_at(tuple(Span(*span) for span in line), cell)

    assert told == "" or ": " in told


def test_no_two_keys_look_the_same_in_ascii():
    spelled = [to_ascii(action.spelled(True)) for action in ACTIONS if action.shown]

    assert len(set(spelled)) == len(spelled)


async def test_a_heading_counts_the_columns_that_it_cannot_name():
    async with View(scripted.with_phases(60, 2), size=(80, 24)) as view:
        await view.press("3", *["o"] * 3)
        headings = [view.text("phasetable").splitlines()[0]]
        await view.pilot.resize_terminal(66, 24)
        await view.settle()
        headings.append(view.text("phasetable").splitlines()[0])

    assert all("…" not in heading for heading in headings)
    assert " columns ─" in headings[1]


async def test_a_heading_tells_of_a_phase_that_grows_also_while_its_row_is_out_of_view():
    grown = [
        scripted.phase(0, name, "Bert", False, end_growth_bytes=more, peak_growth_bytes=0, growth_spans=64)
        for name, more in (("forward", 0), ("eval", 1 << 20), ("save", 1 << 20))
    ]
    headings = []
    for rows in (grown[:1], grown[:2], grown):
        async with View(scripted.with_phases(phases=tuple(rows))) as view:
            await view.press("3")
            headings.append(view.text("phasetable").splitlines()[0])

    assert "grow" not in headings[0]
    assert "phases; eval grows" in headings[1]
    assert "phases; 2 phases grow" in headings[2]

"""Cells, bars, charts and printed pictures, asserted as the characters that people see."""

import json
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tui import scripted

from gpumem_tui.analysis.ledger import Basis
from gpumem_tui.units import GIB
from gpumem_tui.views import jsonview, panels, present
from gpumem_tui.views import plain as printed
from gpumem_tui.views.bar import apportion, bar
from gpumem_tui.views.text import EIGHTHS, SWATCH, TEXTURE, Span, cut, fit, line_width, plain, to_ascii, width

SECOND = scripted.SECOND
STATES = [
    scripted.picture(60),
    scripted.picture(400, 8, gap=(100, 150)),
    scripted.without_driver(),
    scripted.hidden_processes(),
    scripted.simulated(0, 16),
    scripted.ended(60, code=1),
    scripted.picture(60, 0, ranks=()),
]


@given(st.lists(st.integers(-(2**40), 2**40), max_size=9), st.integers(0, 200))
def test_a_bar_uses_all_its_cells_and_forgets_nobody(sizes, cells):
    counts = apportion(sizes, cells)
    positive = [size for size in sizes if size > 0]

    assert sum(counts) == (cells if positive else 0)
    if len(positive) <= cells:
        assert all(count > 0 for size, count in zip(sizes, counts, strict=True) if size > 0)


def test_a_bar_is_the_terms_in_proportion():
    parts = [("allocated", 8 * GIB), ("cached", 4 * GIB), ("others", 2 * GIB), ("free", 2 * GIB)]

    assert plain(bar(parts, 16 * GIB, 16)) == "████████▓▓▓▓╳╳··"


def test_what_nobody_knows_stays_blank_in_the_bar():
    assert plain(bar([("allocated", 4 * GIB), ("free", None)], 8 * GIB, 8)) == "████    "


def test_without_a_total_there_is_no_bar():
    assert plain(bar([("allocated", GIB)], None, 20)).rstrip() == "total not known"


@given(st.text(max_size=30), st.integers(0, 40))
def test_a_fitted_line_has_exactly_its_cells(text, cells):
    clean = "".join(char for char in text if char.isprintable())

    assert line_width(fit((Span(clean), Span("end", "dim")), cells)) == cells
    assert width(cut(clean, cells)) <= cells


def test_every_texture_has_an_ascii_sign_of_its_own():
    signs = {to_ascii(glyph) for glyph in TEXTURE.values()}

    assert len(signs) == len(TEXTURE)
    assert "?" not in {to_ascii(g) for t, g in TEXTURE.items() if t != "unattributed"} | set(
        to_ascii(EIGHTHS)
    )


def test_a_swatch_beside_a_name_leaves_a_gap_to_the_bar_above_it_and_is_the_same_sign_in_ascii():
    assert "█" not in SWATCH.values()
    assert {to_ascii(glyph) for glyph in SWATCH.values()} == {to_ascii(glyph) for glyph in TEXTURE.values()}


def test_a_block_of_a_device_is_its_title_bar_and_terms():
    state = scripted.picture(60)

    text = [plain(line).rstrip() for line in panels.device_block(state.devices[0], state, 80)]

    assert text == [
        "── GPU 0  NVIDIA A10G ───────────────────────── 18.05 of 24.00 GiB used  75 % ──",
        " █████████████████████████████▓▓▓▓▓▓▓▓▓▒╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳╳┃┃··················",
        " ▅ allocated   8.90  ▓ cached         2.70  ▒ outside   0.45  ╳ others   6.00",
        " ┃ driver      0.50  ? unattributed   0.00  · free      5.45  GiB",
    ]


def test_a_table_of_devices_names_every_term_at_80_columns():
    state = scripted.picture(60, 2)

    text = [plain(block[0]).rstrip() for block in panels.devices_compact(state, 80, 1)]

    assert text == [
        " GPU GiB                  ▅alloc ▓cached  ▒outs. ╳others ┃driver ?unatt.   ·free",
        "   0 ██████▓▓▒╳╳╳╳╳┃····    8.90    2.70    0.45    6.00    0.50    0.00    5.45",
        "▸  1 ██████▓▓▓▒┃········    7.52    4.08    0.45    0.00    0.50    0.00   11.45",
    ]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("cells", [20, 40, 80, 200])
def test_printed_pictures_keep_to_their_width_and_to_ascii(state, cells):
    text = printed.render(state, cells=cells, ascii=True)

    assert text.isascii()
    assert max(width(line) for line in text.splitlines()) <= cells


def test_a_printed_ledger_gives_source_and_age_of_every_term():
    state = scripted.picture(60)
    state = msgspec.structs.replace(state, now_ns=state.now_ns + SECOND // 2)

    text = printed.render(state, cells=100)

    assert "   █ allocated        8.90 GiB  0.5 s ago  allocated_bytes.all.current\n" in text
    assert "   ▒ outside          0.45 GiB  0.5 s ago  = process used − reserved\n" in text
    assert "   = total           24.00 GiB  driver\n" in text


def test_a_printed_simulation_says_so_with_its_assumptions():
    text = printed.render(scripted.simulated(60))

    assert "SIMULATED 1 × 24 GiB: the cards are not real. Assumed sizes:\n   CUDA context: 460 MiB\n" in text


def test_json_has_raw_bytes_that_sum_to_the_total():
    ledger = json.loads(jsonview.render(scripted.picture(60)))["devices"][0]["ledger"]

    assert sum(term["bytes"] for term in ledger["terms"]) == ledger["total"]["bytes"] == 24 * GIB


@pytest.mark.parametrize("state", STATES)
def test_json_never_gives_a_missing_figure_as_a_number(state):
    for device in json.loads(jsonview.render(state))["devices"]:
        for term in [*device["ledger"]["terms"], device["ledger"]["total"]]:
            assert (term["bytes"] is None) != (term["reason"] is None)


def test_printing_a_run_imports_no_terminal_toolkit():
    code = "import sys, gpumem_tui.views.plain, gpumem_tui.views.jsonview, gpumem_tui.views.tui as tui\n"
    code += "print([m for m in ('textual', 'rich', 'torch') if m in sys.modules])"

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@given(st.integers(1, 8), st.integers(1, 200))
def test_terms_of_any_number_stand_in_rows_of_any_width(count, cells):
    terms = [
        present.TermView(
            key="allocated", label=f"part {n}", bytes=n * GIB, note="", source="", basis=Basis.OBSERVED,
            age_ns=None, missing=False,
        )
        for n in range(count)
    ]  # fmt: skip
    rows = panels.term_rows(terms, cells)

    assert {line_width(row) for row in rows} == {cells}
    assert len(rows) <= count

"""Pictures of screens: letters in their cells, everything else as shapes that meet, in SVG and PNG."""

import re
import struct
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from rich.style import Style
from tui import scripted
from tui.driven import View

from gpumem_tui.errors import MissingRequirement
from gpumem_tui.views import raster as rastering
from gpumem_tui.views.raster import raster
from gpumem_tui.views.shapes import HEIGHT, SHADES, WIDTH, shape
from gpumem_tui.views.text import EIGHTHS, TEXTURE
from gpumem_tui.views.tui.painting import paint
from gpumem_tui.views.tui.picture import painted

MARGIN = 12
BLUE, SKY = "#4a9be8", "#8cc9f5"
BRAILLE = "".join(chr(0x2800 + bits) for bits in range(1, 256))
LEFT_TO_FONTS = {"?", "·", " "}


def row(*pieces):
    return [Segment(text, Style.parse(style)) for text, style in pieces]


def words(svg):
    """(x, y, width, text) of every piece of text, in pixels of the page."""
    page = ElementTree.fromstring(svg)
    return [
        (float(t.get("x")), float(t.get("y")), float(t.get("textLength")), t.text)
        for t in page.iter("{http://www.w3.org/2000/svg}text")
    ]


def pixels(png):
    """Rows of (red, green, blue) of a PNG without interlacing."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    place, data = 8, b""
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        body = png[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colours = struct.unpack(">IIBB", body[:10])
            assert (depth, colours) == (8, 6)
        elif kind == b"IDAT":
            data += body
        place += 12 + length
    raw, rows, above = zlib.decompress(data), [], bytes(4 * width)
    for number in range(height):
        start = number * (4 * width + 1)
        line = bytearray(raw[start + 1 : start + 1 + 4 * width])
        for i in range(4 * width):
            a, b = line[i - 4] if i >= 4 else 0, above[i]
            c = above[i - 4] if i >= 4 else 0
            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            line[i] = (line[i] + (0, a, b, (a + b) // 2, nearest)[raw[start]]) % 256
        rows.append([tuple(line[i : i + 3]) for i in range(0, 4 * width, 4)])
        above = bytes(line)
    return rows


def rgb(colour):
    return tuple(bytes.fromhex(colour[1:]))


@pytest.mark.parametrize(
    "char", sorted({*EIGHTHS, *TEXTURE.values(), *BRAILLE, *"─│┤└┴├┄┆▲▸"} - LEFT_TO_FONTS)
)
def test_a_glyph_that_meets_others_is_a_shape_within_its_cell(char):
    corners = [corner for polygon in shape(char) for corner in polygon]

    assert corners or char in SHADES
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in corners)


def test_no_two_glyphs_have_the_same_shape():
    drawn = {shape(char) for char in (*EIGHTHS[1:], *BRAILLE, *"╳┃▩▦▧▤▥▨▫─│┤└┴├┄┆▲▸▔")}

    assert len(drawn) == 8 + 255 + 20


@given(st.lists(st.text(st.sampled_from("ab é─█▓  ×…&<"), max_size=20), max_size=4))
def test_every_word_stands_in_its_cells_whatever_is_between(pieces):
    text = "".join(pieces)
    svg = paint([[Segment(piece) for piece in pieces]], 80, title="t")

    for x, _, width, word in words(svg):
        start = int(x) // WIDTH
        assert text[start : start + len(word)] == word
        assert width == len(word) * WIDTH
    assert "".join(word for *_, word in words(svg)).replace(" ", "") == re.sub("[ ─█▓]", "", text)


async def test_a_picture_of_the_app_has_everything_that_can_be_read_on_it():
    async with View(scripted.with_phases(60, 2)) as view:
        told = painted(view.app, "a run")
        screen = view.screen.splitlines()

    for x, y, _, word in words(told):
        assert screen[int(y) // HEIGHT][int(x) // WIDTH :].startswith(word)
    assert {"allocated", "cached"} <= {word for *_, word in words(told)}
    assert "<title>a run</title>" in told


def test_blocks_above_and_beside_each_other_have_no_seam_in_a_png():
    svg = paint([row(("████", BLUE)), row(("██", BLUE), ("██", BLUE))], 4, title="t")
    drawn = pixels(raster(svg))

    inside = {p for line in drawn[MARGIN : MARGIN + 2 * HEIGHT] for p in line[MARGIN : MARGIN + 4 * WIDTH]}

    assert inside == {rgb(BLUE)}


def test_textures_and_lines_go_on_from_cell_to_cell():
    svg = paint([row(("▓▓▓▓", SKY)), row(("─┴──", SKY))], 4, title="t")
    drawn = pixels(raster(svg))
    shade = [line[MARGIN : MARGIN + 4 * WIDTH] for line in drawn[MARGIN : MARGIN + HEIGHT]]
    line = drawn[MARGIN + HEIGHT + HEIGHT // 2][MARGIN : MARGIN + 4 * WIDTH]

    assert sum(p == rgb(SKY) for each in shade for p in each) == 3 * 4 * WIDTH * HEIGHT // 4
    assert {p == rgb(SKY) for p in line} == {True}


def test_letters_are_drawn_where_the_shapes_leave_them_room():
    with_words = raster(paint([row(("rank 0", "#ffffff on #000000"))], 6, title="t"))
    without = raster(paint([row(("      ", "#ffffff on #000000"))], 6, title="t"))

    assert pixels(with_words) != pixels(without)


def test_without_a_font_the_line_says_so(monkeypatch):
    monkeypatch.setattr("resvg_py.svg_to_bytes", lambda _, **options: b"nothing but ground")

    with pytest.raises(MissingRequirement, match=r"needs a font.*fonts-dejavu.*or write an SVG"):
        rastering.require_raster()


def test_every_picture_of_the_project_is_there_as_svg_and_as_a_small_png():
    folder = Path(__file__).parents[2] / "screenshots"
    drawn = {path.stem for path in folder.glob("*.svg")}

    assert drawn == {path.stem for path in folder.glob("*.png")}
    assert {"overview", "overview-small", "overview-light", "device", "phases", "matrix", "failure"} <= drawn
    assert max(path.stat().st_size for path in folder.iterdir()) < 150_000

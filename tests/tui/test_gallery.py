"""The gallery: how the screens look, picture by picture.

Renew it with ``RENEW_GALLERY=1 python -m pytest tests/tui/test_gallery.py`` and look at what
changed. With other versions of Textual and Rich than those that drew it, only texts are compared.
"""

import html
import os
import re
import time
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from tui import failing, scripted
from tui.test_view import View, log
from unit.test_views_matrix import contexts

from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.views.tui.picture import painted

GALLERY = Path(__file__).parent / "gallery"
DRAWN_BY = "".join(f"{name} {version(name)}\n" for name in ("textual", "rich"))
RENEW = bool(os.environ.get("RENEW_GALLERY"))


def disconnected():
    """A run whose recorder and one of whose ranks are silent."""
    state = scripted.picture(60, 2, facts=scripted.facts(recorder=Life.LOST))
    silent = msgspec.structs.replace(
        state.ranks[1], life=Life.SILENT, spoke_ns=state.now_ns - 40 * scripted.SECOND
    )
    return msgspec.structs.replace(state, ranks=(state.ranks[0], silent))


PICTURES = {
    # name: (picture, columns, rows, keys, options of the view)
    "one-card": (lambda: scripted.with_phases(60), 80, 24, (), {}),
    "two-cards": (lambda: scripted.with_phases(60, 2), 120, 40, (), {}),
    "eight-cards": (lambda: scripted.with_phases(60, 8), 160, 50, (), {}),
    "sixteen-cards": (lambda: scripted.picture(60, 16), 80, 24, (), {}),
    "empty": (lambda: scripted.picture(60, 0, ranks=()), 80, 24, (), {}),
    "disconnected": (disconnected, 80, 24, (), {}),
    "paused": (lambda: scripted.with_phases(60), 80, 24, ("space",), {}),
    "simulated-light": (lambda: scripted.simulated(60, 2), 80, 24, (), {"palette": "light"}),
    "ascii-mono": (lambda: scripted.with_phases(60, 2), 80, 24, (), {"palette": "mono", "ascii": True}),
    "contrast-phases": (lambda: scripted.with_phases(60, 2), 80, 24, ("3",), {"palette": "contrast"}),
    "threatened": (lambda: failing.threatened(2), 80, 24, (), {}),
    "failed": (lambda: failing.failed(2), 80, 24, ("5",), {}),
    "failed-wide": (lambda: failing.failed(2), 160, 50, ("5",), {}),
    "matrix": (lambda: contexts(16), 80, 24, ("4", "down", "tab"), {}),
    "map": (lambda: failing.failed(2), 80, 24, ("7",), {"palette": "safe"}),
    "output": (lambda: scripted.picture(60), 80, 24, ("6",), {"output": log(30)}),
    "commands": (lambda: scripted.picture(60), 80, 24, ("colon", *"theme"), {}),
}


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def texts(svg: str) -> list[str]:
    """What can be read in a picture."""
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)", svg)]


@pytest.mark.parametrize("name", PICTURES)
async def test_a_screen_looks_as_it_does_in_the_gallery(name):
    picture, columns, rows, keys, options = PICTURES[name]
    async with View(picture(), size=(columns, rows), **options) as view:
        await view.press(*keys)
        await view.app.draw()
        await view.settle()
        drawn = painted(view.app, name)
    kept = GALLERY / f"{name}.svg"
    if RENEW:
        kept.write_text(drawn)
        (GALLERY / "drawn-by.txt").write_text(DRAWN_BY)

    same_painter = (GALLERY / "drawn-by.txt").read_text() == DRAWN_BY

    assert texts(drawn) == texts(kept.read_text())
    assert drawn == kept.read_text() or not same_painter, f"{name} has other colours or places"


def test_the_gallery_has_no_picture_that_nobody_draws():
    assert {path.stem for path in GALLERY.glob("*.svg")} == set(PICTURES)


def test_a_picture_of_the_gallery_can_be_told_from_another():
    one, other = ((GALLERY / f"{name}.svg").read_text() for name in ("one-card", "paused"))

    assert texts(one) != texts(other)
    assert "allocated" in " ".join(texts(one))

"""``screenshot``: any screen of any recording as an SVG, or one clear line."""

import re

import pytest

from gpumem_tui import demo
from gpumem_tui.views.tui import SCREENS
from gpumem_tui.views.tui.registry import make_views

pytestmark = pytest.mark.slow


def texts(svg: bytes) -> str:
    found = re.findall(r"<text[^>]*>([^<]*)", svg.decode())
    return " ".join(found).replace("&#160;", " ")


def test_every_screen_that_is_offered_exists():
    assert set(SCREENS) <= set(make_views())


def test_a_failure_of_a_recording_is_drawn_into_a_new_file(gpumem):
    file = gpumem.folder / "failure.svg"
    gpumem("screenshot", demo.RECORDING, "--screen", "failure", "--size", "100x30", "-o", file)
    drawn = file.read_bytes()

    assert drawn.startswith(b"<svg")
    assert "what was asked, and what was there" in texts(drawn)
    assert "RECORDED" in texts(drawn)


def test_a_moment_and_a_theme_can_be_chosen_and_ascii_is_ascii(gpumem):
    early = gpumem("screenshot", demo.RECORDING, "--at", "60", "--theme", "light", "--ascii").stdout
    late = gpumem("screenshot", demo.RECORDING).stdout

    assert "running since" in texts(early)
    assert "exit code 1" in texts(late)
    assert texts(early).isascii()
    assert b"#fbfbf9" in early


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--size", "3x3"), "--size '3x3' is not understood; write 120x36"),
        (("--at", "-5"), "--at -5 is no moment of a run"),
        (("--screen", "sofa"), "invalid choice: 'sofa'"),
    ],
)
def test_what_cannot_be_drawn_is_one_line_and_code_2(gpumem, words, says):
    refused = gpumem("screenshot", demo.RECORDING, *words, exits=2)

    assert says in refused.stderr.decode()
    assert refused.stdout == b""


def test_a_file_is_never_overwritten(gpumem):
    file = gpumem.folder / "taken.svg"
    file.write_text("mine")
    gpumem("screenshot", demo.RECORDING, "-o", file, exits=5)

    assert file.read_text() == "mine"


def test_a_file_that_ends_in_png_is_one(gpumem):
    file = gpumem.folder / "failure.png"
    gpumem("screenshot", demo.RECORDING, "--screen", "failure", "--size", "100x30", "-o", file)
    piped = gpumem("screenshot", demo.RECORDING, "--format", "png", "--size", "100x30").stdout

    assert file.read_bytes().startswith(b"\x89PNG")
    assert piped.startswith(b"\x89PNG")


def test_without_the_library_for_png_the_line_says_what_to_install(gpumem):
    (gpumem.folder / "blocked").mkdir()
    (gpumem.folder / "blocked" / "resvg_py.py").write_text("raise ImportError('not here')")
    file = gpumem.folder / "failure.png"

    refused = gpumem(
        "screenshot", demo.RECORDING, "-o", file, exits=2, env={"PYTHONPATH": str(gpumem.folder / "blocked")}
    )

    assert refused.stderr.decode().count("\n") == 1
    assert b"pip install 'gpumem-tui[png]'" in refused.stderr
    assert not file.exists()

"""Changed cells go to the terminal on a way of their own: it must show what a whole redraw would."""

import pytest

pytestmark = pytest.mark.slow


def cells(view):
    """Every cell above the footer with its look; of a blank, only its ground."""
    buffer = view.screen.buffer
    return [[look(buffer[y][x]) for x in range(view.screen.columns)] for y in range(view.screen.lines - 1)]


def look(cell):
    return (cell.data, cell.bg) if cell.data == " " else (cell.data, cell.fg, cell.bg, cell.bold)


@pytest.mark.parametrize(("size", "theme"), [((160, 50), "dark"), ((80, 24), "ansi")])
def test_after_pictures_and_keys_the_screen_is_the_one_that_a_redraw_makes(terminal, size, theme):
    view = terminal("--devices", "8", "--interval", "0.5", "--theme", theme, size=size)
    view.wait_for("ranks")
    drawn, redrawn = {}, {}
    for keys, text in (("2", "ledger"), ("3", "── now"), ("1", "── ranks")):
        view.type(keys)
        view.wait_for(text)
        view.pump(1.2)  # some pictures more
        view.type(" ")
        view.wait_for("paused at")
        view.pump(0.3)
        drawn[keys] = cells(view)
        view.screen.reset()
        view.type("\x0c")
        view.wait_for("paused at")
        view.pump(0.3)
        redrawn[keys] = cells(view)
        view.type(" ")
        while "paused at" in view.text:
            view.pump(0.1)
    differing = [
        (keys, row) for keys in drawn for row in range(size[1] - 1) if drawn[keys][row] != redrawn[keys][row]
    ]

    assert differing == []

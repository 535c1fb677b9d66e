"""The view on a real terminal: keys, ways to end, and what the terminal is like afterwards."""

import fcntl
import re
import signal
import struct
import termios

import pytest

pytestmark = pytest.mark.slow


def test_a_view_is_watched_left_by_keys_and_leaves_the_terminal_as_it_was(terminal, tmp_path):
    view = terminal("--result", str(tmp_path / "result"))
    view.wait_for("allocated")
    view.type("6")
    view.wait_for("epoch 1 loss 0.25")
    progress = [line.rstrip() for line in view.text.splitlines() if "%|" in line]
    view.type("1")
    view.wait_for("processes on the cards")
    view.type("q")
    view.wait_for("detach, the run goes on")
    view.type("d")

    assert view.wait() == 0
    assert view.restored()
    assert progress == [" 42%|####      | 999/1000"]
    assert (tmp_path / "result").read_text() == "detached []"
    assert "bert-ft goes on; come back with: gpumem-tui attach bert-ft" in "".join(view.screen.display)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_view_and_restores_the_terminal(terminal, tmp_path, number):
    view = terminal("--result", str(tmp_path / "result"))
    view.wait_for("allocated")
    view.process.send_signal(number)

    assert view.wait() == 128 + number
    assert view.restored()
    assert (tmp_path / "result").read_text() == "detached []"


def test_ctrl_c_asks_and_does_not_kill(terminal):
    view = terminal()
    view.wait_for("allocated")
    view.type("\x03")
    view.wait_for("detach, the run goes on")
    view.type("\x1b")
    view.wait_for("1 overview")

    assert view.process.poll() is None


def test_a_crash_restores_the_terminal_and_says_where_the_report_lies(terminal, tmp_path):
    view = terminal("--fail", "--interval", "0.5", "--result", str(tmp_path / "result"), size=(200, 24))
    code = view.wait()
    (report,) = tmp_path.glob("gpumem-tui-crash-*.txt")

    assert code == 70
    assert view.restored()
    assert "RuntimeError: scripted failure" in report.read_text()
    assert f"the report lies in {report}" in view.text.replace("\n", "")


def test_the_view_ends_when_the_line_drops(terminal, tmp_path):
    view = terminal("--result", str(tmp_path / "result"))
    view.wait_for("allocated")
    view.hang_up()

    assert view.process.wait(10) == 128 + signal.SIGHUP
    assert (tmp_path / "result").read_text() == "detached []"


def test_the_view_draws_on_the_terminal_when_stderr_is_a_file(terminal, tmp_path):
    with (tmp_path / "log").open("wb") as log:
        view = terminal(stderr=log)
        view.wait_for("allocated")
        view.type("qd")
        view.wait()

    assert (tmp_path / "log").read_text().startswith("bert-ft goes on")


def test_with_no_color_no_colour_code_is_sent(terminal):
    view = terminal("--devices", "2", env={"NO_COLOR": "1"})
    view.wait_for("allocated")
    view.type("q")
    view.wait_for("detach")
    parameters = [p for codes in re.findall(rb"\x1b\[([0-9;]*)m", view.raw) for p in codes.split(b";")]

    assert set(parameters) <= {b"", b"0", b"1", b"2", b"7", b"22", b"27", b"39", b"49"}


def test_a_terminal_of_sixteen_colours_gets_no_more(terminal):
    view = terminal("--devices", "2", env={"TERM": "xterm", "COLORTERM": ""})
    view.wait_for("allocated")
    view.pump(0.3)

    assert b"38;2" not in view.raw
    assert b"38;5" not in view.raw


def test_a_resize_is_followed(terminal):
    view = terminal("--devices", "8")
    view.wait_for("ranks")
    view.screen.resize(50, 160)
    fcntl.ioctl(view.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    view.wait_for("rank 7  4707")

    assert any("GPU 0" in line and "ranks, allocated of" in line for line in view.text.splitlines())


def test_without_a_utf8_locale_the_view_is_ascii(terminal):
    view = terminal(env={"LANG": "C", "LC_ALL": "C"})
    view.wait_for("allocated")
    view.pump(0.3)

    assert view.raw.isascii()

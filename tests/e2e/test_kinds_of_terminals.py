"""``attach`` on terminals of every kind: dumb ones, those without UTF-8, those that keep their mouse."""

import pexpect
import pytest
from product import COMMAND

from gpumem_tui import demo

pytestmark = pytest.mark.slow


def attached(gpumem, *flags, until, keys="q", **environment):
    """Everything that ``attach`` sends to a terminal, and its exit code."""
    told = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **environment}
    child = pexpect.spawn(
        COMMAND[0],
        [*COMMAND[1:], "attach", str(demo.RECORDING), *flags],
        env={**gpumem.environment, **told},
        dimensions=(24, 80),
        use_poll=True,
        timeout=30,
    )
    sent = b""
    try:
        child.expect_exact(until)
        sent += child.before + child.after
        child.send(keys)
        child.expect(pexpect.EOF)
        sent += child.before
    finally:
        child.close()
    return sent, child.exitstatus


def test_a_dumb_terminal_gets_plain_text_and_no_control_sequence(gpumem):
    sent, code = attached(gpumem, until="ranks", keys="", TERM="dumb")

    assert code == 0
    assert b"\x1b" not in sent
    assert b"allocated" in sent


def test_a_locale_without_utf8_gets_ascii_in_the_view_too(gpumem):
    sent, code = attached(gpumem, until="allocated", LANG="C", LC_ALL="C")

    assert code == 0
    assert b"\x1b[?1049h" in sent
    assert sent.isascii()


def test_a_terminal_can_keep_its_mouse_and_its_line(gpumem):
    sent, code = attached(gpumem, "--no-mouse", "--low-bandwidth", "--theme", "ansi", until="allocated")

    assert code == 0
    assert b"\x1b[?1000h" not in sent
    assert b";48;2;" not in sent


@pytest.mark.parametrize("flags", [("--interval", "0"), ("--interval", "nan"), ("--theme", "pink")])
def test_a_bad_option_is_one_line_before_the_screen_is_taken(gpumem, flags):
    refused = gpumem("attach", demo.RECORDING, *flags, exits=2)

    assert refused.stderr.startswith(b"gpumem-tui: ")
    assert refused.stderr.count(b"\n") == 1

"""Output of a workload, as a terminal would leave it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.views.text import Span, plain
from gpumem_tui.views.transcript import Transcript, wrap


def text_of(*chunks: bytes) -> list[str]:
    transcript = Transcript()
    for chunk in chunks:
        transcript.feed(chunk)
    return [plain(transcript.line(i)) for i in range(len(transcript))]


@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        (b"one\r\ntwo\r\n", ["one", "two", ""]),
        (b" 10%|#   \r 20%|##  ", [" 20%|##  "]),
        (b"long line\rshort\x1b[K", ["short"]),
        (b"abc\b\bX", ["aXc"]),
        (b"a\tb", ["a       b"]),
        (b"outer\r\ninner 1\x1b[A\rOUTER\n\rinner 2", ["OUTER", "inner 2"]),
        (b"\x1b[2J\x1b[H\x1b]0;title\x07\x1b[?25lplain\x1b[?1049h", ["plain"]),
        (b"\x1bPdevice\x1b\\ok\x1b(B", ["ok"]),
        (b"bell\x07 null\x00", ["bell null"]),
        ("größe 漢字\r".encode() + "漢".encode(), ["漢öße 漢字"]),
        (b"bad \xff utf", ["bad \ufffd utf"]),
        (b"", [""]),
    ],
)
def test_output_reads_as_on_a_terminal(printed, seen):
    assert text_of(printed) == seen


@given(
    st.lists(
        st.sampled_from([b"\x1b[31m", b"ab", b"\r", b"\n", b"\x1b[K", "é漢".encode(), b"\x1b[2A"]),
        max_size=30,
    ),
    st.data(),
)
def test_where_the_log_is_cut_does_not_matter(tokens, data):
    whole = b"".join(tokens)
    cut = data.draw(st.integers(0, len(whole)))

    assert text_of(whole[:cut], whole[cut:]) == text_of(whole)


@given(st.binary(max_size=400))
def test_no_output_can_reach_the_terminal_as_a_control(printed):
    assert all(
        line.isprintable() or line == ""
        for line in "".join(text_of(printed)).split("\ufffd")
        if line.isascii()
    )


def test_colours_are_kept_and_end_with_their_reset():
    transcript = Transcript()
    transcript.feed(b"\x1b[1;31mred\x1b[0m plain \x1b[38;2;1;2;3mrgb\x1b[48;5;9mon")

    assert transcript.line(0) == (
        Span("red", "=bold color(1)"),
        Span(" plain ", "text"),
        Span("rgb", "=#010203"),
        Span("on", "=#010203 on color(9)"),
    )


def test_lines_beyond_the_cursor_s_reach_are_kept():
    lines = text_of(b"".join(b"line %d\n" % n for n in range(500)))

    assert lines[0] == "line 0"
    assert len(lines) == 501


@given(st.text(alphabet="ab漢 ", max_size=60), st.integers(2, 20))
def test_wrapping_loses_nothing_and_keeps_to_the_width(text, cells):
    rows = wrap((Span(text),), cells)

    assert "".join(plain(row) for row in rows) == text

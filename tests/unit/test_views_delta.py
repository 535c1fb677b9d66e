"""What reaches the line: the same screen as Textual meant, in fewer bytes."""

import re

import pyte
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.views.tui.delta import Delta

COLUMNS, ROWS = 20, 5
STYLES = [
    "",
    "1;38;2;1;2;3;48;2;9;9;9",
    "38;2;200;2;3;48;2;9;9;9",
    "38;5;3;48;5;9",
    "31;44",
    "91;100",
    "7",
    "7;31",
    "4;31",
    "2",
]


def frame(writes) -> str:
    parts = ["\x1b[?2026h"]
    for row, column, style, text in writes:
        text = text[: COLUMNS - column]
        parts.append(
            f"\x1b[{row + 1};{column + 1}H" + (f"\x1b[{style}m{text}\x1b[0m" if style else text) + "\n"
        )
    return "".join(parts) + "\x1b[?2026l"


writes = st.lists(
    st.tuples(
        st.integers(0, ROWS - 2),
        st.integers(0, COLUMNS - 1),
        st.sampled_from(STYLES),
        st.text(alphabet="ab█▓é 1", min_size=1, max_size=COLUMNS),
    ),
    max_size=12,
)


def shown(data: str):
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.Stream(screen)
    stream.feed(data.replace("\n", "\r\n"))
    return [[seen(screen.buffer[y][x]) for x in range(COLUMNS)] for y in range(ROWS)]


def seen(cell):
    """Of a blank, only what shows: its ground, unless it is reversed or lined."""
    plain = cell.data == " " and not (cell.reverse or cell.underscore or cell.strikethrough)
    return cell._replace(fg="default", bold=False, italics=False, blink=False) if plain else cell


@given(st.lists(writes, max_size=5), st.data())
def test_the_screen_is_the_one_that_was_meant(frames, data):
    whole = "".join(map(frame, frames))
    cut = data.draw(st.integers(0, len(whole)))
    delta = Delta()
    sent = delta.translate(whole[:cut]) + delta.translate(whole[cut:])

    assert shown(sent) == shown(whole)


def test_the_same_frame_again_sends_nothing():
    delta = Delta()
    data = frame([(0, 0, STYLES[1], "hello"), (1, 3, "", "漢字 x")])
    delta.translate(data)

    assert delta.translate(data) == ""


def test_a_changed_digit_sends_one_jump_and_one_character():
    delta = Delta()
    delta.translate(frame([(2, 0, STYLES[2], "allocated  8.90"), (1, 0, STYLES[2], "x")]))

    assert (
        delta.translate(frame([(2, 0, STYLES[2], "allocated  8.91")])) == "\x1b[?2026h\x1b[3;15H1\x1b[?2026l"
    )


def test_the_last_row_comes_first_so_that_a_key_is_seen_to_be_heard():
    sent = Delta().translate(frame([(0, 0, "", "a chart"), (1, 0, "", "a table"), (2, 0, "", "a footer")]))

    assert re.findall("a [a-z]+", sent) == ["a footer", "a chart", "a table"]


def test_a_large_picture_is_shown_in_parts_as_it_comes():
    rows = [(row, 0, "31" if row % 2 else "32", "x" * 150) for row in range(60)]
    sent = Delta().translate("\x1b[?2026h" + "".join(f"\x1b[{r + 1};1H\x1b[{s}m{t}" for r, _, s, t in rows))
    parts = sent.split("\x1b[?2026l")[:-1]

    assert len(parts) >= 4
    assert all(part.startswith("\x1b[?2026h") for part in parts)
    assert max(map(len, parts)) < 2500


def test_bold_goes_on_and_off_alone():
    delta = Delta()
    sent = delta.translate(
        frame([(0, 0, "38;2;1;2;3;48;2;9;9;9", "a"), (0, 1, "1;38;2;1;2;3;48;2;9;9;9", "b")])
    )
    back = delta.translate(frame([(0, 2, "38;2;1;2;3;48;2;9;9;9", "c")]))

    assert "a\x1b[1mb" in sent
    assert "\x1b[22mc" in back


def test_a_blank_is_not_sent_again_for_a_colour_that_it_does_not_show():
    delta = Delta()
    delta.translate(frame([(1, 0, "31;44", "     ")]))

    assert delta.translate(frame([(1, 0, "32;44", "     ")])) == ""
    assert delta.translate(frame([(1, 0, "32;45", "     ")])) != ""
    assert delta.translate(frame([(1, 0, "7;32;45", "     ")])) != ""


def test_what_is_painted_over_in_the_same_data_is_never_sent():
    delta = Delta()
    sent = delta.translate(frame([(0, 0, "31", "xxxxx")]) + frame([(0, 0, "31", "hello")]))

    assert sent == "\x1b[?2026h\x1b[1;1H\x1b[0;31mhello\x1b[?2026l"


def test_after_forgetting_everything_is_sent_again():
    delta = Delta()
    data = frame([(0, 0, "", "hello")])
    delta.translate(data)
    delta.forget()

    assert "hello" in delta.translate(data)


def test_leaving_the_alternate_screen_goes_through_and_forgets():
    delta = Delta()
    data = frame([(0, 0, "", "hello")])
    delta.translate(data)

    assert "\x1b[?1049l" in delta.translate("\x1b[?1049l\x1b[?25h")
    assert "hello" in delta.translate(data)


def test_a_row_that_alternates_between_colours_is_sent_colour_by_colour_where_that_is_shorter():
    dear, cheap = ("38;2;200;2;3", "38;2;1;200;3"), ("31", "32")
    rows = [
        "\x1b[1;1H" + "".join(f"\x1b[{colours[n % 2]}m{n}{n}\x1b[0m" for n in range(10))
        for colours in (dear, cheap)
    ]
    first, second = (Delta().translate(row) for row in rows)

    assert (first.count("m"), second.count("m")) == (2, 10)
    assert shown(first) == shown(rows[0])


def test_what_was_meant_for_a_larger_terminal_is_not_drawn_over_its_edges():
    delta = Delta()
    delta.forget((COLUMNS, ROWS))
    sent = delta.translate(
        "".join(
            f"\x1b[{row + 1};1H{word:<30}"
            for row, word in enumerate(("top", "", "", "", "footer", "", "old"))
        )
        + "\x1b[2;20H漢"
    )
    rows = ["".join(cell.data for cell in row).rstrip() for row in shown(sent)]

    assert rows == ["top", "", "", "", "footer"]


def test_what_was_left_out_is_sent_once_there_is_room():
    delta = Delta()
    delta.forget((COLUMNS, 2))
    delta.translate("\x1b[4;1Hlate")
    delta.forget((COLUMNS, ROWS))

    assert "late" in delta.translate("\x1b[4;1Hlate")

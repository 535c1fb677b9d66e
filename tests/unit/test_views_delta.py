"""What reaches the line: the same screen as Textual meant, in fewer bytes."""

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
    return [[screen.buffer[y][x] for x in range(COLUMNS)] for y in range(ROWS)]


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
    delta.translate(frame([(2, 0, STYLES[2], "allocated  8.90"), (3, 0, STYLES[2], "x")]))

    assert (
        delta.translate(frame([(2, 0, STYLES[2], "allocated  8.91")])) == "\x1b[?2026h\x1b[3;15H1\x1b[?2026l"
    )


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

"""What is typed, as the keys that it is, however quickly and in whatever pieces it comes."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpumem_tui.views.tui.keyboard import Keyboard

TYPED = {
    "\x1b": "escape",
    "3": "3",
    "q": "q",
    ":": "colon",
    "\x1b[D": "left",
    "\x1b[1;2C": "shift+right",
    "\x1b[5~": "pageup",
    "\x1bOP": "f1",
    "\t": "tab",
    "\r": "enter",
}


def heard(*pieces):
    """The keys of some pieces that come one right after the other, and then nothing."""
    keyboard = Keyboard()
    messages = [message for piece in pieces for message in keyboard.hear(piece)]
    return [message.key for message in (*messages, *keyboard.rest())]


@pytest.mark.parametrize("key", ["3", "q", ":"])
def test_a_key_right_behind_escape_is_a_key_of_its_own(key):
    assert heard(b"\x1b" + key.encode()) == heard(b"\x1b", key.encode()) == ["escape", TYPED[key]]


def test_an_escape_alone_is_told_once_nothing_follows_it():
    keyboard = Keyboard()
    at_once = [*keyboard.hear(b"\x1b")]

    assert at_once == []
    assert [message.key for message in keyboard.rest()] == ["escape"]
    assert [*keyboard.rest()] == []


@given(st.lists(st.sampled_from([*TYPED]), max_size=12), st.lists(st.integers(0, 40), max_size=4))
def test_keys_are_the_same_in_one_packet_and_in_many(keys, cuts):
    # Enter after escape is alt+enter to every terminal, and stays that.
    data = "".join(keys).replace("\x1b\r", "\x1b").replace("\x1b\t", "\x1b").encode()
    places = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]

    assert heard(*pieces) == heard(data)


@example(["\x1b", "\x1b"])
@given(st.lists(st.sampled_from([key for key in TYPED if key not in "\r\t"]), max_size=12))
def test_keys_of_one_packet_are_all_told_in_their_order(keys):
    assert heard("".join(keys).encode()) == [TYPED[key] for key in keys]

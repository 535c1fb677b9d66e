"""Sentences cut and broken: nothing is lost unsaid, no line is too wide."""

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.views.prose import brief, broken
from gpumem_tui.views.text import width

TEXT = "rank 0 ran out of memory on GPU 0 in eval, step 240: 500 MiB wanted, 216 MiB free"


def test_a_sentence_without_room_ends_after_a_clause():
    assert brief(TEXT, 72) == "rank 0 ran out of memory on GPU 0 in eval, step 240: 500 MiB wanted …"
    assert brief(TEXT, 60) == "rank 0 ran out of memory on GPU 0 in eval, step 240 …"


def test_a_sentence_with_room_stays_whole():
    assert brief(TEXT, len(TEXT)) == TEXT


def test_a_clause_that_leaves_most_of_the_room_empty_is_not_worth_it():
    assert brief("rank 0: AdamW will make 1.24 GiB of state", 30) == "rank 0: AdamW will make 1.24 …"


@given(st.text("ab, :;評", max_size=60), st.integers(0, 70))
def test_a_cut_sentence_fits_and_says_that_it_is_cut(text, cells):
    told = brief(text, cells)

    assert width(told) <= cells
    assert told == text or told.endswith("…") or cells == 0


@given(st.text("ab 評", max_size=60), st.integers(2, 20))
def test_a_broken_sentence_has_all_of_its_words(text, room):
    parts = broken(text, room)

    assert all(width(part) <= room for part in parts)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")

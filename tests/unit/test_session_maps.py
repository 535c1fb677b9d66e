"""Maps that were asked for, as pictures have them: the latest ones, or why there is none."""

import msgspec
import pytest

from gpumem_tui import records
from gpumem_tui.session.maps import MapBook
from gpumem_tui.session.rank import RankModel

WHO = (7, 70)


@pytest.fixture
def book(tmp_path):
    (tmp_path / "failures").mkdir()
    record = {"t_ns": 5, "kind": "map", "pid": 7, "ordinal": 0, "pools": []}
    (tmp_path / "failures" / "one.json").write_bytes(msgspec.json.encode(record))
    (tmp_path / "secret.json").write_bytes(msgspec.json.encode(record))
    return MapBook(tmp_path)


def states(book):
    return book.states({WHO: RankModel(*WHO)}, [])


def test_the_latest_of_a_rank_and_device_is_shown(book):
    book.take(WHO, records.Map(4, 0, None, "too many blocks"))
    book.take(WHO, records.Map(5, 0, "failures/one.json", None, 900))

    (state,) = states(book)

    assert (state.record.kind, state.reason, state.took_ns) == ("map", None, 900)


def test_a_refusal_keeps_its_reason(book):
    book.take(WHO, records.Map(4, 0, None, "too many blocks"))

    (state,) = states(book)

    assert (state.record, state.reason) == (None, "too many blocks")


@pytest.mark.parametrize(
    "path", ["secret.json", "failures/../secret.json", "/etc/passwd", "failures/none.json"]
)
def test_a_path_that_is_no_record_of_this_run_is_not_opened(book, path):
    book.take(WHO, records.Map(5, 0, path))

    (state,) = states(book)

    assert state.record is None
    assert path in state.reason

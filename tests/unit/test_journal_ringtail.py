"""The last span edges of a killed process come from its ring."""

from pathlib import Path

import pytest

from gpumem_tui.agent import ring
from gpumem_tui.agent.ring import BEGIN, END, EXACT, MISSING, NO_DEVICE, Ring
from gpumem_tui.journal.ringtail import read_last_word, read_tail
from gpumem_tui.records import Begin, End


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "7-70.ring"


def put(made: Ring, edge: int, span: int, *, more: int = 0, ordinal: int = 0, t_ns: int = 1, **level) -> int:
    forward = made.name("forward", "Net")
    error = made.name("", "OutOfMemoryError") if level.get("error") else 0
    levels = [level.get(name, MISSING) for name in ("allocated", "reserved", "peak", "peak_reserved")]
    return made.put(edge, more, forward, ordinal, EXACT, span, 0, 9, 4, t_ns, *levels, error)


def test_an_edge_is_told_as_the_journal_tells_it(path: Path):
    made = Ring(str(path), 7, 70)
    put(made, BEGIN, 1, more=1, ordinal=0, allocated=10, reserved=20)
    put(made, BEGIN, 1, more=0, ordinal=1, allocated=11, reserved=21)
    put(made, END, 1, t_ns=5, allocated=1, reserved=2, peak=3, peak_reserved=4, error=True)

    assert read_tail(path, 0) == [
        Begin(1, 2, 1, None, 9, "forward", "Net", 4, [(0, 10, 20), (1, 11, 21)]),
        End(5, 3, 1, "OutOfMemoryError", [(0, 1, 2, 3, 4, True)]),
    ]


def test_what_the_journal_has_is_not_told_again(path: Path):
    made = Ring(str(path), 7, 70)
    seqs = [put(made, BEGIN, span, allocated=1, reserved=1) for span in range(5)]

    assert [edge.span for edge in read_tail(path, seqs[2])] == [3, 4]


def test_a_level_that_was_not_read_is_left_out_and_never_0(path: Path):
    put(Ring(str(path), 7, 70), BEGIN, 1, allocated=5)

    assert read_tail(path, 0)[0].levels == []


def test_an_edge_without_device_has_no_levels(path: Path):
    put(Ring(str(path), 7, 70), BEGIN, 1, ordinal=NO_DEVICE)

    assert read_tail(path, 0)[0].levels == []


def test_after_many_rounds_the_last_ones_are_there_in_order(path: Path):
    made = Ring(str(path), 7, 70)
    last = [put(made, BEGIN, span) for span in range(3 * ring.SLOTS + 5)][-1]

    edges = read_tail(path, last - 10)
    assert [edge.seq for edge in edges] == list(range(last - 9, last + 1))


def test_an_edge_of_which_a_slot_was_overwritten_keeps_the_other_devices(path: Path):
    made = Ring(str(path), 7, 70)
    put(made, BEGIN, 1, more=1, ordinal=0, allocated=1, reserved=1)
    put(made, BEGIN, 1, more=0, ordinal=1, allocated=2, reserved=2)
    for span in range(2, ring.SLOTS + 1):
        put(made, BEGIN, span)

    assert read_tail(path, 0)[0].levels == [(1, 2, 2)]


def test_edges_of_two_threads_do_not_mix(path: Path):
    made = Ring(str(path), 7, 70)
    put(made, BEGIN, 1, more=1, ordinal=0, allocated=1, reserved=1)
    put(made, BEGIN, 2, more=1, ordinal=0, allocated=3, reserved=3)
    put(made, BEGIN, 1, more=0, ordinal=1, allocated=2, reserved=2)
    put(made, BEGIN, 2, more=0, ordinal=1, allocated=4, reserved=4)

    assert [(edge.span, edge.levels) for edge in read_tail(path, 0)] == [
        (1, [(0, 1, 1), (1, 2, 2)]),
        (2, [(0, 3, 3), (1, 4, 4)]),
    ]


def test_a_torn_slot_costs_its_edge_only(path: Path):
    made = Ring(str(path), 7, 70)
    for span in range(3):
        put(made, BEGIN, span)
    with path.open("r+b") as file:
        file.seek(ring._slot_at(2) + ring.SLOT.size - 8)
        file.write(bytes(8))

    assert [edge.span for edge in read_tail(path, 0)] == [0, 2]


@pytest.mark.parametrize(
    "data", [b"", b"garbage" * 10, bytes(ring.size_bytes()), b"\xff" * ring.size_bytes()]
)
def test_a_file_that_is_no_ring_has_nothing_to_tell(path: Path, data: bytes):
    path.write_bytes(data)

    assert read_tail(path, 0) == []


def test_a_ring_that_is_not_there_has_nothing_to_tell(path: Path):
    assert read_tail(path, 0) == []


def test_the_first_word_on_how_a_process_ends_stands(path: Path):
    made = Ring(str(path), 7, 70)
    before = read_last_word(path)
    made.say(ring.RAISED_MEMORY)
    made.say(ring.ENDING)

    assert (before, read_last_word(path)) == (ring.RUNNING, ring.RAISED_MEMORY)


@pytest.mark.parametrize("data", [b"", b"garbage" * 10, ring.MAGIC, bytes(ring.size_bytes())])
def test_a_file_that_is_no_ring_has_no_last_word(path: Path, data: bytes):
    path.write_bytes(data)

    assert read_last_word(path) is None

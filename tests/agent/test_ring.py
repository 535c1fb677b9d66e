"""The ring keeps the last edges through anything but the loss of the disk."""

import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.agent import ring as rings
from gpumem_tui.agent.ring import Ring

NONE = rings.MISSING


def make(path):
    return Ring(str(path), pid=1, started=2)


def put(ring, span, edge=rings.BEGIN, name=None, levels=(5, 6, 7, 8), error=0):
    number = ring.name(*(name or ("forward", "Net")))
    return ring.put(edge, 0, number, 0, rings.EXACT, span, 0, 77, 3, 1000 + span, *levels, error)


def test_an_edge_comes_back_as_it_was_written(tmp_path):
    ring = make(tmp_path / "r")
    put(ring, 9, edge=rings.END, error=ring.name("error", "OutOfMemoryError"))

    (edge,) = ring.drain()

    assert edge == rings.Edge(
        seq=1, edge=rings.END, more=0, phase="forward", name="Net", ordinal=0, exact=True, span=9, parent=0,
        thread=77, step=3, t_ns=1009, allocated_bytes=5, reserved_bytes=6, peak_allocated_bytes=7,
        peak_reserved_bytes=8, error="OutOfMemoryError",
    )  # fmt: skip


def test_a_level_that_was_not_read_is_none_and_not_zero(tmp_path):
    ring = make(tmp_path / "r")
    put(ring, 1, levels=(0, NONE, NONE, NONE))

    (edge,) = ring.drain()

    assert (edge.allocated_bytes, edge.reserved_bytes) == (0, None)


def test_the_file_is_on_disk_in_full_before_the_first_edge(tmp_path):
    make(tmp_path / "r")

    assert (tmp_path / "r").stat().st_blocks * 512 >= rings.size_bytes()


@given(counts=st.lists(st.integers(0, 3 * rings.SLOTS), min_size=1, max_size=4))
def test_every_edge_is_drained_once_or_counted_as_lost(tmp_path_factory, counts):
    ring = make(tmp_path_factory.mktemp("ring") / "r")
    seen = []
    for count in counts:
        for _ in range(count):
            put(ring, 1)
        seen += [edge.seq for edge in ring.drain()]

    assert seen == sorted(set(seen))
    assert len(seen) + ring.lost_edges == sum(counts)
    assert sum(counts) in (0, *seen[-1:])
    ring.close()


def test_an_edge_that_an_interrupt_kept_from_being_written_holds_nothing_up(tmp_path):
    ring = make(tmp_path / "r")
    put(ring, 1)
    next(ring._numbers)  # claimed, never written
    put(ring, 3)

    assert [edge.span for edge in ring.drain()] == [1]
    assert [edge.span for edge in ring.drain()] == [3]
    assert ring.lost_edges == 1


def test_after_sigkill_a_reader_finds_the_last_edge(tmp_path):
    path = tmp_path / "r"
    code = f"""
        import os, signal
        from gpumem_tui.agent.ring import Ring, BEGIN
        ring = Ring({str(path)!r}, 1, 2)
        for span in range(1, 20001):
            ring.put(BEGIN, 0, ring.name("backward", ""), -1, 0, span, 0, 1, -1, span, 0, 0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)

    edges = list(rings.read_edges(path.read_bytes()))

    assert len(edges) == rings.SLOTS
    assert (edges[-1].span, edges[-1].phase, edges[-1].step) == (20000, "backward", None)


def test_a_torn_slot_is_left_out_and_the_others_are_read(tmp_path):
    path = tmp_path / "r"
    ring = make(path)
    for span in range(5):
        put(ring, span)
    data = bytearray(path.read_bytes())
    torn = rings.HEADER_BYTES + rings.NAMES * rings.NAME_BYTES + 3 * rings.SLOT.size
    data[torn + rings.SLOT.size - 8 : torn + rings.SLOT.size] = b"\0" * 8

    assert [edge.seq for edge in rings.read_edges(bytes(data))] == [1, 2, 4, 5]


@pytest.mark.parametrize("data", [b"", b"x" * 100, b"\0" * rings.size_bytes()])
def test_what_is_no_ring_is_refused(data):
    with pytest.raises(ValueError, match="ring"):
        list(rings.read_edges(data))


def test_more_names_than_the_table_holds_share_the_last(tmp_path):
    ring = make(tmp_path / "r")
    for number in range(2 * rings.NAMES):
        put(ring, number, name=("phase", f"Model{number}"))

    edges = ring.drain()

    assert edges[100].name == "Model100"
    assert edges[-1].name == "(further names)"


def test_names_beyond_the_table_take_no_memory(tmp_path):
    ring = make(tmp_path / "r")
    numbers = {ring.name(f"epoch {number}", "") for number in range(5 * rings.NAMES)}

    assert len(numbers) == rings.NAMES - 1
    assert len(ring.numbers) < rings.NAMES

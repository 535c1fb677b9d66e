"""A stretch of a journal, read by seeking, holds everything of its time; whatever its segments are."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

from gpumem_tui.agent import wire
from gpumem_tui.journal import stretch
from gpumem_tui.journal.segments import scan
from gpumem_tui.records import Sample

SECOND = 10**9
WHO = "rank-7-70"


def write(journal, starts, every_ns, last_ns):
    """Segments that begin at these times, a sample every so often, each of a hundred bytes or so."""
    moments = list(range(0, last_ns, every_ns))
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], last_ns + 1], strict=True)):
        head = {**wire.header("rank", "r", number), "pid": 7, "started_ticks": 70, "t_ns": start}
        lines = [Sample(t, 0, t, t, 1 << 50, 1 << 50, 1 << 50, 1, 1) for t in moments if start <= t < end]
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        (journal / f"{WHO}.{number:04d}.jsonl").write_bytes(wire.encode_header(head) + data)
    return moments


def told(journal, since_ns, until_ns):
    segments = scan(journal).writers[WHO]
    place = stretch.find(journal, segments, since_ns)
    return [r.t_ns for part in stretch.read(journal, segments, place, until_ns) for r in part.records]


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    starts=st.lists(st.integers(1, 3599), max_size=6, unique=True),
    bounds=st.tuples(st.integers(0, 3600), st.integers(0, 3600)).map(sorted),
)
def test_everything_between_two_moments_is_read_once_and_in_order(tmp_path_factory, starts, bounds):
    journal = tmp_path_factory.mktemp("journal")
    since_ns, until_ns = (bound * SECOND for bound in bounds)
    moments = write(journal, [0, *sorted(start * SECOND for start in starts)], SECOND, 3600 * SECOND)
    found = told(journal, since_ns, until_ns)

    assert found == sorted(set(found))
    assert {t for t in moments if since_ns < t <= until_ns} <= set(found)


def test_only_about_the_stretch_is_read(tmp_path):
    write(tmp_path, [0], SECOND // 100, 3600 * SECOND)
    found = told(tmp_path, 1800 * SECOND, 1810 * SECOND)

    assert len(found) < 20_000
    assert min(found) > 1700 * SECOND


@pytest.mark.parametrize("size_bytes", [1, 5_000, 50_000, 10**9])
def test_going_back_crosses_segments_and_stops_at_the_beginning(tmp_path, size_bytes):
    write(tmp_path, [0, 100 * SECOND, 200 * SECOND], SECOND, 300 * SECOND)
    segments = scan(tmp_path).writers[WHO]
    end = stretch.Place(2, stretch.size_of(tmp_path, segments[2]))
    start = stretch.back(tmp_path, segments, end, size_bytes)
    whole = sum(stretch.size_of(tmp_path, segment) for segment in segments.values())

    assert stretch.distance_bytes(tmp_path, segments, start, end) == min(size_bytes, whole)


def test_a_damaged_line_costs_that_line_and_is_counted(tmp_path):
    write(tmp_path, [0], SECOND, 10 * SECOND)
    path = tmp_path / f"{WHO}.0000.jsonl"
    path.write_bytes(path.read_bytes().replace(b'["sample",5', b'["sample\x00,5', 1))
    segments = scan(tmp_path).writers[WHO]
    (part,) = stretch.read(tmp_path, segments, stretch.Place(0, 0), 10 * SECOND)

    assert [r.t_ns // SECOND for r in part.records] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert part.corrupt_lines == 1


def test_a_segment_that_is_gone_is_passed_over(tmp_path):
    write(tmp_path, [0, 5 * SECOND], SECOND, 10 * SECOND)
    segments = scan(tmp_path).writers[WHO]
    (tmp_path / segments[0].name).unlink()
    parts = list(stretch.read(tmp_path, segments, stretch.Place(0, 0), 10 * SECOND))

    assert [r.t_ns // SECOND for part in parts for r in part.records] == [5, 6, 7, 8, 9]

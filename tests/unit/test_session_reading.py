"""Reading a long recording by its short way comes to the same as taking line by line."""

import longrun
import msgspec
import pytest

from gpumem_tui import records
from gpumem_tui.session import Recording

SECOND = longrun.SECOND


class LineByLine(Recording):
    """Takes every line by the long way."""

    def _take_lines(self, head, lines):
        for record in lines:
            self._take(head, record)


def with_what_is_seldom(run):
    """The recording with failures, stalls and retold edges among the many samples and spans."""
    for path in sorted(run.journal.glob("rank-*.jsonl")):
        head, *lines = path.read_bytes().splitlines(keepends=True)
        half = len(lines) // 2
        at = msgspec.json.decode(lines[half])[1]
        seldom = [
            records.Stall(at, at - 20 * SECOND, "forward", 3, ["train.py:1"]),
            records.Mark(at, "empty_cache", None),
            records.Pressure(at, 0, 2, 2),
            records.End(at, 10**6, 10**6, "ValueError", [(0, 1, 2, 3, 4, True)]),
            records.Failure(at, 0, 1 << 30, "forward", 3, None),
        ]
        told = [msgspec.json.encode(record) + b"\n" for record in seldom]
        twice = lines[half - 20 : half]
        path.write_bytes(b"".join([head, *lines[:half], *twice, *told, *lines[half:]]))


@pytest.mark.parametrize("bucket_s", [0, 10], ids=["raw", "folded"])
def test_the_picture_is_that_of_every_line_taken_by_itself(tmp_path, bucket_s):
    run = longrun.write(tmp_path / "run", hours=0.2, ranks=3, devices=2, bucket_s=bucket_s, whole_s=300)
    with_what_is_seldom(run)
    one, other = Recording(run), LineByLine(run)

    state, expected = one.read(), other.read()

    assert state.failures
    assert len(state.bands) > 100
    for name in state.__struct_fields__:
        assert getattr(state, name) == getattr(expected, name), name
    moment_ns = state.now_ns - 100 * SECOND
    stretch = (moment_ns - 60 * SECOND, moment_ns + 60 * SECOND)
    assert one.read_at(moment_ns, *stretch) == other.read_at(moment_ns, *stretch)


def test_what_follows_a_stall_ends_it_wherever_the_pieces_are_cut(tmp_path):
    run = longrun.write(tmp_path / "run", hours=0.05, ranks=1, devices=1, bucket_s=0, ended=False)
    with_what_is_seldom(run)
    one, other = Recording(run), LineByLine(run)
    one.refresh()
    other.refresh()

    assert one._failures._signs.stalls == other._failures._signs.stalls == {}

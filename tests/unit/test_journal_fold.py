"""Folding tells the truth: held against brute force over what was written."""

import os
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.agent import wire
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.journal import budget, fold
from gpumem_tui.journal.budget import keep_within
from gpumem_tui.journal.fold import fold_segment
from gpumem_tui.journal.foldfacts import decode_fold_facts
from gpumem_tui.journal.follow import Follower
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.segments import list_segments
from gpumem_tui.records import (
    Begin,
    End,
    Host,
    Load,
    Mark,
    Memories,
    Memory,
    Output,
    Processes,
    Record,
    Sample,
    Samples,
    Spans,
    Tree,
)

SECOND = 1_000_000_000
WHO = "rank-7-70"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return new_run(tmp_path / "a-run")


def new_run(path: Path) -> RunDirectory:
    run = RunDirectory(path)
    run.journal.mkdir(parents=True)
    return run


def path_of(run: RunDirectory, number: int = 0, who: str = WHO) -> Path:
    return run.journal / f"{who}.{number:04d}.jsonl"


def write(run: RunDirectory, lines: list[Record | bytes], number: int = 0, who: str = WHO, **head) -> Path:
    role = who.partition("-")[0]
    told = {**wire.header(role, "a-run", number), "pid": 7, "started_ticks": 70, **head}
    data = [line if isinstance(line, bytes) else msgspec.json.encode(line) + b"\n" for line in lines]
    path_of(run, number, who).write_bytes(wire.encode_header(told) + b"".join(data))
    return path_of(run, number, who)


def read(run: RunDirectory) -> list[Record]:
    with Follower(run) as follower:
        return [record for _, record in follower.poll()]


def folded(run: RunDirectory, *lines: Record | bytes, bucket_ns: int = SECOND) -> list[Record]:
    """What a reader gets of these lines, folded as one segment."""
    fold_segment(write(run, list(lines)), bucket_ns)
    return read(run)


def test_samples_of_a_stretch_become_their_least_most_and_last(run: RunDirectory):
    samples = [Sample(t, 0, a, 10 * a, alloc_retries=t) for t, a in [(1, 5), (2, 9), (3, 2), (4, 4)]]

    assert folded(run, *samples) == [Samples(1, 4, 0, 4, (2, 9, 4), (20, 90, 40), 4)]


def test_devices_and_stretches_are_kept_apart(run: RunDirectory):
    found = folded(run, Sample(1, 0, 5, 5), Sample(1, 1, 6, 6), Sample(SECOND, 0, 7, 7))

    assert [(b.ordinal, b.t_ns, b.allocated) for b in found] == [
        (0, 1, (5, 5, 5)), (1, 1, (6, 6, 6)), (0, SECOND, (7, 7, 7)),
    ]  # fmt: skip


def test_samples_without_figures_stay_a_gap(run: RunDirectory):
    assert folded(run, Sample(1, 0, 5, 5), Sample(2, 0), Sample(3, 0), Sample(4, 0, 7, 7)) == [
        Samples(2, 3, 0, 2, None, None),
        Samples(1, 4, 0, 2, (5, 7, 7), (5, 7, 7)),
    ]


def test_missing_memory_is_counted_and_its_reason_kept(run: RunDirectory):
    found = folded(
        run,
        Memory(1, 9, 0, 100, 60, 30, 10, 2),
        Memory(2, 9, 0, reason="lost"),
        Memory(3, 9, 0, reason="lost"),
        Memory(4, 9, 0, 100, 50, 40, 10, 2),
    )

    assert found == [
        Memory(3, 9, 0, reason="lost"),
        Memories(1, 4, 0, 2, 100, (30, 40, 40), (50, 60, 50), 10, 2),
    ]


def test_a_reason_that_was_kept_is_not_counted_again_when_folded_further(run: RunDirectory):
    fold_segment(write(run, [Memory(1, 9, 0, reason="lost")]), SECOND)
    fold_segment(run.journal / f"{WHO}.0000.fold.jsonl", 10 * SECOND)

    assert read(run) == [Memories(1, 1, 0, 0, missing=1), Memory(1, 9, 0, reason="lost")]


def span(
    number: int, t_ns: int, until_ns: int, peak: int, error: str | None = None, exact: bool = True
) -> list[Record]:
    return [
        Begin(t_ns, 2 * number, number, None, 1, "forward", "Net", number, [(0, 1, 2)]),
        End(until_ns, 2 * number + 1, number, error, [(0, 1, 2, peak, 2 * peak, exact)]),
    ]


def test_finished_spans_become_a_summary_the_first_one_apart(run: RunDirectory):
    found = folded(run, *span(1, 0, 9, 50), *span(2, 10, 14, 7), *span(3, 20, 26, 5, "OutOfMemoryError"))

    assert found == [
        Spans(
            0, 9, "forward", "Net", 0, True, 1, 0, (9,) * 3, (50,) * 3, (100,) * 3, (1,) * 3, (2,) * 3,
            inexact=0, step=1,
        ),
        Spans(
            10, 26, "forward", "Net", 0, False, 2, 1, (4, 6, 6), (5, 7, 5), (10, 14, 10), (1,) * 3, (2,) * 3,
            inexact=0, step=3,
        ),
    ]  # fmt: skip


def test_a_fold_still_says_whose_peaks_are_lower_bounds(run: RunDirectory):
    cold, warm = folded(
        run, *span(1, 0, 9, 50), *span(2, 10, 14, 7, exact=False), *span(3, 20, 26, 5), *span(4, 30, 36, 5)
    )

    assert (cold.inexact, warm.inexact, warm.count) == (0, 1, 3)


def test_spans_that_the_process_has_folded_itself_move_the_last_edge_on(run: RunDirectory):
    own = Spans(10, 20, "decode", "Net", None, False, 8, inexact=0, seq=40, step=9)
    path = fold_segment(write(run, [*span(1, 0, 9, 50), own]), SECOND)

    assert decode_fold_facts(path.read_bytes().partition(b"\n")[0] + b"\n").last_seq == 40


def test_a_span_over_a_border_is_seen_to_begin_and_end_in_any_mixture(run: RunDirectory):
    begin, end = span(1, 0, 9, 50)
    paths = [write(run, [begin], 0), write(run, [end], 1)]

    seen = []
    for path in paths:
        seen.append(read(run))
        fold_segment(path, SECOND)
    seen.append(read(run))

    assert seen == [[begin, end]] * 3


@pytest.mark.parametrize("first_is_folded", [True, False])
def test_what_was_cold_in_an_earlier_segment_is_warm_in_a_later(run: RunDirectory, first_is_folded: bool):
    paths = [write(run, span(1, 0, 9, 50), 0), write(run, span(2, 10, 14, 7), 1)]
    for path in paths if first_is_folded else paths[1:]:
        fold_segment(path, SECOND)

    assert [record.cold for record in read(run) if isinstance(record, Spans)][-1] is False


def test_names_without_end_do_not_make_a_header_without_end(run: RunDirectory):
    lines: list[Record] = []
    for number in range(2 * fold.SEEN_LIMIT):
        lines += [Begin(1, 1, number, phase="user", name=str(number)), End(2, 2, number)]
    spans = folded(run, *lines)

    assert sum(record.cold for record in spans) == fold.SEEN_LIMIT
    assert len(spans) == 2 * fold.SEEN_LIMIT


def test_everything_else_is_kept_byte_for_byte(run: RunDirectory):
    lines = [
        wire.encode("mark", 1, "x", None, "of tomorrow"),
        b'["aura",1,{"a":[]}]\n',
        wire.encode("bye", 3),
    ]
    path = fold_segment(write(run, list(lines)), SECOND)

    assert path.read_bytes().splitlines(keepends=True)[1:] == lines


def test_of_process_lists_the_last_and_every_pids_maximum_are_kept_whole(run: RunDirectory):
    lists = [
        Processes(1, 0, 0, [(1, 10, "C", None), (2, 90, "C", None)]),
        Processes(2, 0, 0, [(1, 99, "C", None)]),
        Processes(3, 0, 0, [(1, 50, "C", None)]),
        Processes(4, 0, 0, [], "lost"),
        Processes(5, 0, 0, [(1, 50, "C", None)]),
    ]

    assert folded(run, *lists) == [lists[0], lists[1], lists[3], lists[4]]


def test_a_process_list_that_does_not_change_is_kept_once(run: RunDirectory):
    assert len(folded(run, *(Processes(t, 0, 0, [(1, 10, "C", None)]) for t in range(9)))) == 1


def test_load_host_tree_and_output_keep_their_maxima_and_the_last(run: RunDirectory):
    lines = [
        Load(1, 0, 90, 40, 100), Load(2, 0, 10, 50, 90), Load(3, 0, 20, 30, 80), Load(4, 0, 5, 5, 5),
        Host(1, 100, 10), Host(2, 100, 90), Host(3, 100, 50),
        Tree(1, [(1, 1, 0, 9)]), Tree(2, [(1, 1, 0, 5)]), Tree(3, [(1, 1, 0, 4)]),
        Output(1, 10), Output(2, 20),
    ]  # fmt: skip
    dropped = [lines[2], lines[5], lines[8], lines[10]]

    assert folded(run, *lines) == [line for line in lines if line not in dropped]


BYTES = st.none() | st.integers(0, 1 << 40)
TIMES = st.integers(0, 200 * SECOND)


@st.composite
def journals(draw: st.DrawFn) -> list[list[Record]]:
    """A writer's records in the order of time, cut into segments anywhere; spans nested and unfinished."""
    moments = sorted(draw(st.lists(TIMES, max_size=40)))
    opened: list[int] = []
    lines: list[Record] = []
    for seq, t in enumerate(moments, 1):
        kind = draw(
            st.sampled_from(["sample", "memory", "begin", "end", "mark", "processes", "load", "host"])
        )
        if kind == "sample":
            lines.append(Sample(t, draw(st.integers(0, 1)), draw(BYTES), draw(BYTES), ooms=draw(BYTES)))
        elif kind == "memory":
            used = draw(BYTES)
            reason = draw(st.sampled_from(["lost", "failed"])) if used is None else None
            lines.append(Memory(t, 1, 0, 100, used, used, 5, 2, reason))
        elif kind == "begin":
            opened.append(seq)
            lines.append(Begin(t, seq, seq, phase=draw(st.sampled_from("fb")), name="n"))
        elif kind == "end":
            number = opened.pop() if opened and draw(st.booleans()) else 10_000 + seq
            peaks = [(i, 1, 2, draw(st.integers(0, 99)), 4, True) for i in range(draw(st.integers(0, 2)))]
            lines.append(End(t, seq, number, draw(st.sampled_from([None, "Error"])), peaks))
        elif kind == "processes":
            rows = [(pid, draw(BYTES), "C", None) for pid in draw(st.sets(st.integers(1, 3)))]
            lines.append(Processes(t, 1, 0, rows))
        elif kind == "load":
            lines.append(Load(t, 0, draw(st.none() | st.integers(0, 100))))
        elif kind == "host":
            lines.append(Host(t, 100, draw(BYTES)))
        else:
            lines.append(Mark(t, "x"))
    cuts = sorted(draw(st.lists(st.integers(0, len(lines)), max_size=3)))
    return [lines[a:b] for a, b in zip([0, *cuts], [*cuts, len(lines)], strict=True)]


def extent(values: list[int | None]) -> tuple[int, int, int] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known), known[-1]) if known else None


@given(journals(), st.sampled_from([SECOND, 10 * SECOND, 60 * SECOND]))
def test_buckets_are_true_against_brute_force(tmp_path_factory, segments, width):
    run = new_run(tmp_path_factory.mktemp("run") / "a-run")
    expected: list[Record] = []
    seen: set[str] = set()
    for number, lines in enumerate(segments):
        write(run, list(lines), number)
        groups: dict[tuple, list] = defaultdict(list)
        begins: dict[int, tuple[Begin, bool]] = {}
        for line in lines:
            stretch = line.t_ns // width
            if isinstance(line, Sample):
                gap = (line.allocated_bytes is None, line.reserved_bytes is None)
                groups["sample", stretch, line.ordinal, gap].append(line)
            elif isinstance(line, Memory):
                groups["memory", stretch, line.index].append(line)
            elif isinstance(line, Begin):
                begins[line.span] = (line, line.phase not in seen)
                seen.add(line.phase)
            elif isinstance(line, End) and line.span in begins:
                begin, cold = begins.pop(line.span)
                for level in line.levels or [None]:
                    ordinal = None if level is None else level[0]
                    groups["span", stretch, begin.phase, ordinal, cold].append((begin, line, level))
        for (kind, _, *what), group in groups.items():
            if kind == "sample":
                expected.append(
                    Samples(
                        group[0].t_ns, group[-1].t_ns, what[0], len(group),
                        extent([s.allocated_bytes for s in group]), extent([s.reserved_bytes for s in group]),
                        None, next((s.ooms for s in reversed(group) if s.ooms is not None), None),
                    )
                )  # fmt: skip
            elif kind == "memory":
                known = [m for m in group if m.used_bytes is not None]
                used = extent([m.used_bytes for m in group])
                expected.append(
                    Memories(
                        group[0].t_ns, group[-1].t_ns, 0, len(known), 100, used, used, 5,
                        len(group) - len(known),
                    )
                )  # fmt: skip
            else:
                peaks = extent([level and level[3] for _, _, level in group])
                fixed = [extent([level and level[i] for _, _, level in group]) for i in (4, 1, 2)]
                expected.append(
                    Spans(
                        min(b.t_ns for b, _, _ in group), group[-1][1].t_ns, what[0], "n", what[1], what[2],
                        len(group), sum(e.error is not None for _, e, _ in group),
                        extent([e.t_ns - b.t_ns for b, e, _ in group]), peaks, *fixed,
                        inexact=sum(level is not None and not level[5] for _, _, level in group),
                        step=group[-1][0].step,
                    )
                )  # fmt: skip
    for number in range(len(segments)):
        fold_segment(path_of(run, number), width)

    found = [record for record in read(run) if isinstance(record, Samples | Memories | Spans)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@given(journals(), st.sampled_from([SECOND, 10 * SECOND, 60 * SECOND]))
def test_thinning_keeps_every_maximum_and_the_last(tmp_path_factory, segments, width):
    run = new_run(tmp_path_factory.mktemp("run") / "a-run")
    lines = [line for segment in segments for line in segment]
    fold_segment(write(run, list(lines)), width)

    def maxima(records: list[Record]) -> dict:
        most: dict = {}
        for record in records:
            stretch = record.t_ns // width
            if isinstance(record, Processes):
                most["last processes", stretch] = record
                for pid, used, *_ in record.rows:
                    most[pid, stretch] = max(most.get((pid, stretch), -1), -1 if used is None else used)
            elif isinstance(record, Load):
                most["last load", stretch] = record
                most["load", stretch] = max(most.get(("load", stretch), -1), record.utilization or -1)
            elif isinstance(record, Host) and record.available_bytes is not None:
                least = most.get(("host", stretch), 1 << 60)
                most["host", stretch] = min(least, record.available_bytes)
        return most

    kept = read(run)
    assert maxima(kept) == maxima(lines)
    assert {r for r in map(repr, kept) if r.startswith("Proc")} <= {repr(line) for line in lines}


@given(journals())
def test_folding_in_steps_is_folding_at_once_to_the_byte(tmp_path_factory, segments):
    results = []
    for widths in ([60], [1, 60], [1, 10, 60], [10, 60]):
        run = new_run(tmp_path_factory.mktemp("run") / "a-run")
        head = {"host": "h", "pid": 1, "t_ns": 0, "wall_ns": 0, "boot": None, "started_ticks": 1}
        for number, lines in enumerate(segments):
            path = write(run, list(lines), number, **head)
            for width in widths:
                path = fold_segment(path, width * SECOND)
        results.append({path.name: path.read_bytes() for path in run.journal.iterdir()})

    assert results[1:] == results[:1] * 3


def test_folding_to_the_same_width_again_changes_nothing(run: RunDirectory):
    path = fold_segment(write(run, [Sample(1, 0, 5, 5)]), SECOND)
    before = path.stat().st_ino

    assert fold_segment(path, SECOND) == path
    assert path.stat().st_ino == before


def test_a_width_that_does_not_contain_the_present_one_is_refused(run: RunDirectory):
    path = fold_segment(write(run, [Sample(1, 0, 5, 5)]), 10 * SECOND)

    with pytest.raises(ValueError, match="do not fit"):
        fold_segment(path, 15 * SECOND)


def test_a_segment_without_header_is_left_as_it_is(run: RunDirectory):
    path_of(run).write_bytes(b"garbage\n")

    with pytest.raises(UnreadableRecording, match="no header"):
        fold_segment(path_of(run), SECOND)
    assert path_of(run).read_bytes() == b"garbage\n"


def test_a_segment_that_grows_meanwhile_is_left_as_it_is(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    path = write(run, [Sample(1, 0, 5, 5)])
    decode = fold.decode_block

    def grow(block: bytes):
        with path.open("ab") as file:
            file.write(wire.encode("mark", 2, "x"))
        monkeypatch.setattr(fold, "decode_block", decode)
        return decode(block)

    monkeypatch.setattr(fold, "decode_block", grow)

    with pytest.raises(fold.StillWritten):
        fold_segment(path, SECOND)
    assert [entry.name for entry in run.journal.iterdir()] == [path.name]


def test_a_disk_that_is_full_leaves_the_segment_and_no_litter(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
):
    path = write(run, [Sample(1, 0, 5, 5)])
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))

    with pytest.raises(OSError, match="No space"):
        fold_segment(path, SECOND)
    assert [entry.name for entry in run.journal.iterdir()] == [path.name]


@given(st.binary(max_size=400))
def test_garbage_costs_itself_when_folded(tmp_path_factory, garbage: bytes):
    run = new_run(tmp_path_factory.mktemp("run") / "a-run")
    write(run, [Mark(1, "x"), garbage + b"\n", Mark(2, "x")])
    write(run, [], 1)
    raw = [r for r in read(run) if isinstance(r, Mark)]
    fold_segment(path_of(run), SECOND)

    assert [r for r in read(run) if isinstance(r, Mark)] == raw


# --- the budget ---------------------------------------------------------------------------------

MINUTE = 60 * SECOND


def long_run(run: RunDirectory, segments: int = 8, who: str = WHO) -> None:
    """Segments of ten minutes of samples at 1 Hz with as many marks as would be worth folding."""
    for number in range(segments):
        start = number * 10 * MINUTE
        lines: list[Record | bytes] = [
            Sample(start + i * SECOND // 10, 0, i, i, i, i, i, 0, 0, i, i) for i in range(6000)
        ]
        write(run, lines, number, who, t_ns=start)


def size(run: RunDirectory) -> int:
    return sum(path.stat().st_size for path in run.journal.iterdir())


def widths(run: RunDirectory, who: str = WHO) -> list[int]:
    def width(name: str) -> int:
        with (run.journal / name).open("rb") as file:
            return msgspec.json.decode(file.readline()).get("bucket_ns", 0) // SECOND

    return [width(segment.name) for segment in list_segments(run.journal)[who]]


def test_within_the_budget_nothing_is_touched(run: RunDirectory):
    long_run(run)

    report = keep_within(run, size(run), 80 * MINUTE)

    assert (report.folded, report.over, widths(run)) == ((), False, [0] * 8)


def test_the_oldest_are_folded_first_and_no_more_than_needed(run: RunDirectory):
    long_run(run)

    report = keep_within(run, size(run) - 100_000, 80 * MINUTE)

    assert not report.over
    assert widths(run) == [1, 0, 0, 0, 0, 0, 0, 0]
    assert report.bytes_after == size(run)


def test_a_smaller_budget_takes_wider_buckets_and_leaves_the_last_minutes(run: RunDirectory):
    long_run(run)
    limit = 1_300_000

    while keep_within(run, limit, 75 * MINUTE).folded:
        pass

    assert size(run) <= limit
    assert widths(run)[-2:] == [0, 0]
    assert widths(run)[:-2] == sorted(widths(run)[:-2], reverse=True)
    assert sum(r.count if isinstance(r, Samples) else isinstance(r, Sample) for r in read(run)) == 48_000


def test_only_what_cannot_be_met_otherwise_takes_the_last_minutes_too(run: RunDirectory):
    long_run(run)

    while (report := keep_within(run, 1, 80 * MINUTE)).folded:
        pass

    assert report.over
    assert widths(run)[-1] == 0
    assert widths(run)[-2] > 0


def test_one_call_does_a_bounded_part_of_the_work(run: RunDirectory):
    long_run(run)

    report = keep_within(run, 1, 80 * MINUTE, work_bytes=1)

    assert len(report.folded) == 1
    assert report.over


@pytest.mark.parametrize("writer_lives", [True, False])
def test_the_last_segment_of_a_writer_is_folded_only_if_it_is_gone(run: RunDirectory, writer_lives: bool):
    pid = os.getpid()
    ticks = wire.started_ticks(pid) if writer_lives else 1
    path = write(run, [Sample(t, 0, 1, 1) for t in range(5000)], t_ns=0, pid=pid, started_ticks=ticks)
    os.utime(path, (0, 0))

    report = keep_within(run, 1, 80 * MINUTE)

    assert len(report.folded) == (0 if writer_lives else 1)


def test_what_a_killed_call_left_over_is_removed(run: RunDirectory):
    raw = write(run, [Sample(1, 0, 5, 5)])
    data = raw.read_bytes()
    fold_segment(raw, SECOND)
    raw.write_bytes(data)
    (run.journal / f"{WHO}.0001.fold.jsonl.tmp").write_text("half a fo")

    report = keep_within(run, 1 << 30, 0)

    assert sorted(report.removed) == [raw.name, f"{WHO}.0001.fold.jsonl.tmp"]
    assert read(run) == [Samples(1, 1, 0, 1, (5, 5, 5), (5, 5, 5))]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("call", ["fsync", "rename", "unlink"])
def test_a_fold_that_is_killed_at_any_point_leaves_the_whole(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, call: str
):
    path = write(run, [Sample(t, 0, 5, 5) for t in range(100)])
    write(run, [], 1)

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os if call == "fsync" else Path, call, killed)
        fold_segment(path, SECOND)
    counts = sum(r.count if isinstance(r, Samples) else 1 for r in read(run))
    keep_within(run, 1 << 30, 0)

    assert counts == sum(r.count if isinstance(r, Samples) else 1 for r in read(run)) == 100
    assert len(list(run.journal.iterdir())) == 2


def test_a_segment_that_cannot_be_folded_is_told_and_stops_nothing(run: RunDirectory):
    long_run(run, 3)
    path_of(run, 1).write_bytes(b"garbage\n" * 10_000)

    report = keep_within(run, 1, 80 * MINUTE)

    assert len(report.left) == 1
    assert "0001" in report.left[0]


def test_all_writers_share_one_budget(run: RunDirectory):
    long_run(run, 4)
    long_run(run, 4, "driver")

    keep_within(run, size(run) - 500_000, 80 * MINUTE, work_bytes=1 << 30)

    assert widths(run)[0] == widths(run, "driver")[0] == 1


def test_widths_fit_into_each_other():
    assert all(
        wide % narrow == 0 for narrow, wide in zip(budget.WIDTHS_NS, budget.WIDTHS_NS[1:], strict=False)
    )

"""Following journals as they grow: each line once, in order, whatever happens to the files."""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.agent import wire
from gpumem_tui.agent.journal import Journal
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.journal import follow, window
from gpumem_tui.journal.fold import fold_segment
from gpumem_tui.journal.follow import Follower, Losses
from gpumem_tui.journal.lines import LINE_LIMIT_BYTES
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.journal.segments import list_segments
from gpumem_tui.records import Begin, Device, Mark, Sample, Samples, decode_line

SECOND = 1_000_000_000
WHO = "rank-7-70"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return new_run(tmp_path / "a-run")


def new_run(path: Path) -> RunDirectory:
    run = RunDirectory(path)
    run.journal.mkdir(parents=True)
    run.write_facts(
        RunFile(
            run="a-run", command=["x"], cwd="/", host="node", user="me", boot="b", wall_ns=50, t_ns=30,
            version="0", interactive=False, keeper_pid=1, keeper_ticks=1,
        )
    )  # fmt: skip
    return run


def head(segment: int = 0, role: str = "rank", **more) -> bytes:
    return wire.encode_header({**wire.header(role, "a-run", segment), "pid": 7, "started_ticks": 70, **more})


def marks(*times: int) -> bytes:
    return b"".join(wire.encode("mark", t, "x") for t in times)


def path_of(run: RunDirectory, number: int = 0, who: str = WHO) -> Path:
    return run.journal / f"{who}.{number:04d}.jsonl"


def append(run: RunDirectory, data: bytes, number: int = 0, who: str = WHO) -> None:
    with path_of(run, number, who).open("ab") as file:
        file.write(data)


def times(batch) -> list[int]:
    return [record.t_ns for _, record in batch]


def losses(follower: Follower, who: str = WHO) -> Losses:
    return follower.losses[who]


def test_a_run_without_journals_has_nothing_to_say(tmp_path: Path):
    assert len(Follower(RunDirectory(tmp_path)).poll()) == 0


def test_each_line_comes_once_with_its_writers_header(run: RunDirectory):
    append(run, head() + marks(1, 2))
    follower = Follower(run)

    first = list(follower.poll())
    append(run, marks(3))

    assert [(header.pid, record) for header, record in first] == [(7, Mark(1, "x")), (7, Mark(2, "x"))]
    assert times(follower.poll()) == [3]
    assert times(follower.poll()) == []


def test_nothing_is_read_where_nothing_has_changed(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    append(run, head() + marks(1) + b'["mark",2')
    follower = Follower(run)
    follower.poll()
    follower.poll()

    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("read"))

    assert times(follower.poll()) == []


def test_a_line_that_has_not_ended_is_kept_until_it_has(run: RunDirectory):
    line = head() + marks(1)
    follower = Follower(run)
    found = []
    for byte in line + marks(2):
        append(run, bytes([byte]))
        found += times(follower.poll())

    assert found == [1, 2]
    assert losses(follower) == Losses()


@pytest.mark.parametrize("cut", range(1, len(marks(2))))
def test_a_torn_line_in_a_finished_segment_costs_that_line_and_is_counted(run: RunDirectory, cut: int):
    append(run, head() + marks(1) + marks(2)[:-cut])
    append(run, head(1) + marks(3), 1)
    follower = Follower(run)

    assert times(follower.poll()) == [1, 3]
    assert losses(follower) == Losses(corrupt_lines=1)


def test_a_torn_line_that_the_writer_closed_later_costs_that_line(run: RunDirectory):
    append(run, head() + marks(1) + marks(2)[:-4] + b"\n" + marks(3))
    follower = Follower(run)

    assert times(follower.poll()) == [1, 3]
    assert losses(follower) == Losses(corrupt_lines=1)


def test_a_kind_of_tomorrow_is_counted_apart(run: RunDirectory):
    append(run, head() + b'["aura",1]\n' + marks(2))
    follower = Follower(run)

    assert times(follower.poll()) == [2]
    assert losses(follower) == Losses(unknown_lines=1)


@pytest.mark.parametrize("size", [LINE_LIMIT_BYTES - 1, LINE_LIMIT_BYTES, 3 * LINE_LIMIT_BYTES])
def test_a_line_is_read_up_to_a_mebibyte_and_a_longer_one_is_skipped(run: RunDirectory, size: int):
    start = b'["mark",2,"'
    append(run, head() + marks(1) + start + b"x" * (size - len(start) - 2) + b'"]\n' + marks(3))
    follower = Follower(run)

    batch = follower.poll()

    fits = size <= LINE_LIMIT_BYTES
    assert times(batch) == ([1, 2, 3] if fits else [1, 3])
    assert losses(follower) == Losses(overlong_lines=0 if fits else 1)


def test_a_line_that_grows_beyond_the_limit_is_counted_once(run: RunDirectory):
    append(run, head() + marks(1))
    follower = Follower(run)
    follower.poll()
    for _ in range(20):
        append(run, b"x" * 200_000)
        follower.poll()
    append(run, b"\n" + marks(2))

    assert times(follower.poll()) == [2]
    assert losses(follower) == Losses(overlong_lines=1)


def test_a_file_that_became_shorter_gives_nothing_twice_and_goes_on_with_the_next_line(run: RunDirectory):
    append(run, head() + marks(1, 2))
    follower = Follower(run)
    follower.poll()
    os.truncate(path_of(run), len(head() + marks(1)) - 3)
    again = times(follower.poll())
    append(run, b'"]\n' + marks(3))

    assert again + times(follower.poll()) == [3]
    assert losses(follower) == Losses(truncated=1)


def test_segments_are_read_in_the_order_of_their_numbers(run: RunDirectory):
    for number in (2, 0, 10_000, 1):
        append(run, head(number) + marks(number), number)
    follower = Follower(run)

    assert times(follower.poll()) == [0, 1, 2, 10_000]


def test_a_segment_that_is_missing_in_between_is_counted(run: RunDirectory):
    append(run, head() + marks(0))
    append(run, head(3) + marks(3), 3)
    follower = Follower(run)

    assert times(follower.poll()) == [0, 3]
    assert losses(follower) == Losses(missing_segments=2)


def test_an_empty_next_segment_does_not_end_the_one_before(run: RunDirectory):
    append(run, head() + marks(1))
    append(run, b"", 1)
    follower = Follower(run)
    before = times(follower.poll())
    path_of(run, 1).unlink()
    append(run, marks(2))

    assert before + times(follower.poll()) == [1, 2]


def test_a_newer_schema_is_refused(run: RunDirectory):
    append(run, head(schema=wire.SCHEMA + 1) + marks(1))

    with pytest.raises(UnreadableRecording, match="newer"):
        Follower(run).poll()


def test_a_damaged_header_costs_the_header_only(run: RunDirectory):
    append(run, b"garbage\n" + marks(1))
    follower = Follower(run)

    [(header, record)] = follower.poll()
    assert (header.pid, header.started_ticks, header.wall_ns, record.t_ns) == (7, 70, 50, 1)
    assert losses(follower) == Losses(corrupt_lines=1)


def test_a_segment_without_header_loses_no_record(run: RunDirectory):
    append(run, marks(1, 2))
    follower = Follower(run)

    assert times(follower.poll()) == [1, 2]


def test_files_that_are_no_journals_are_left_alone(run: RunDirectory):
    append(run, head() + marks(1))
    (run.journal / "notes.txt").write_text("x")
    (run.journal / "rank-8-80.0000.jsonl.swp").write_text("x")
    (run.journal / "rank-9-90.0000.jsonl").mkdir()
    os.mkfifo(run.journal / "rank-9-91.0000.jsonl")
    (run.journal / "rank-9-92.0000.jsonl").symlink_to("/dev/zero")
    (run.journal / "driver.0000.jsonl").write_bytes(os.urandom(100_000) + b"\n")
    follower = Follower(run)

    assert times(follower.poll()) == [1]
    assert losses(follower, "driver").corrupt_lines > 0


def test_a_limit_gives_a_part_and_says_that_there_is_more(run: RunDirectory):
    for who in ("rank-1-1", "rank-2-2"):
        append(run, head() + marks(*range(40_000)), who=who)
    follower = Follower(run)

    batches = [follower.poll(limit_bytes=1)]
    while batches[-1].more:
        batches.append(follower.poll(limit_bytes=1))

    assert len(batches) > 4
    assert sum(map(len, batches)) == 80_000


def test_a_limit_starves_nobody(run: RunDirectory):
    for who in ("rank-1-1", "rank-2-2"):
        append(run, head(host=who) + marks(*range(40_000)), who=who)
    follower = Follower(run)

    batches = [follower.poll(limit_bytes=1) for _ in range(2)]

    assert {header.host for batch in batches for header, _ in batch} == {"rank-1-1", "rank-2-2"}


def test_a_segment_that_is_folded_while_it_is_read_is_read_to_its_end_as_it_was(run: RunDirectory):
    append(run, head() + b"".join(wire.encode("sample", t, 0, t, t) for t in range(30_000)))
    append(run, head(1) + marks(99), 1)
    follower = Follower(run)
    first = follower.poll(limit_bytes=1)
    fold_segment(path_of(run), SECOND)

    rest = follower.poll()

    assert first.more
    assert times(first) + times(rest) == [*range(30_000), 99]
    assert not any(isinstance(record, Samples) for _, record in rest)


def test_a_fresh_follower_gets_the_fold(run: RunDirectory):
    append(run, head() + b"".join(wire.encode("sample", t, 0, t, t) for t in range(100)))
    append(run, head(1) + marks(99), 1)
    fold_segment(path_of(run), SECOND)

    bucket, mark = [record for _, record in Follower(run).poll()]
    assert bucket == Samples(0, 99, 0, 100, (0, 99, 99), (0, 99, 99))
    assert mark == Mark(99, "x")


def test_what_was_corrupt_before_folding_stays_counted(run: RunDirectory):
    append(run, head() + b"garbage\n" + marks(1) + marks(2)[:-3])
    append(run, head(1), 1)
    fold_segment(path_of(run), SECOND)
    follower = Follower(run)

    assert times(follower.poll()) == [1]
    assert losses(follower) == Losses(corrupt_lines=2)


def test_the_last_edge_is_known_from_edges_and_from_folds(run: RunDirectory):
    append(run, head() + wire.encode("begin", 1, 5, 1, None, 1, "forward", "m"))
    append(run, wire.encode("end", 2, 6, 1, None, []))
    append(run, head(1) + marks(3), 1)
    live = Follower(run)
    live.poll()
    fold_segment(path_of(run), SECOND)
    fresh = Follower(run)
    fresh.poll()

    assert (live.last_seq[WHO], fresh.last_seq[WHO]) == (6, 6)


def test_a_listing_that_missed_a_segment_in_mid_fold_is_taken_again(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
):
    for number in range(3):
        append(run, head(number) + marks(number), number)
    scan = follow.scan
    looks = []

    def blind_once(journal: Path):
        listing = scan(journal)
        if not looks:
            del listing.writers[WHO][1]
        looks.append(1)
        return listing

    monkeypatch.setattr(follow, "scan", blind_once)
    follower = Follower(run)

    assert times(follower.poll()) == [0, 1, 2]
    assert losses(follower) == Losses()


def test_more_writers_than_may_be_open_are_all_followed(run: RunDirectory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(follow, "OPEN_LIMIT", 3)
    everyone = [f"rank-{pid}-1" for pid in range(10)]
    for who in everyone:
        append(run, head() + marks(1), who=who)
    follower = Follower(run)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    first = follower.poll()
    opened = len(os.listdir("/proc/self/fd")) - before  # noqa: PTH208
    for who in everyone:
        append(run, marks(2), who=who)

    second = follower.poll()
    follower.close()

    assert opened == 3
    assert (times(first), times(second)) == ([1] * 10, [2] * 10)


def test_what_is_folded_while_its_descriptor_was_given_up_is_said_and_not_repeated(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
):
    append(run, head() + marks(1))
    follower = Follower(run)
    follower.poll()
    follower.close()
    append(run, marks(2))
    append(run, head(1) + marks(3), 1)
    fold_segment(path_of(run), SECOND)

    assert times(follower.poll()) == [3]
    assert losses(follower) == Losses(folded_unread=1)


def test_a_window_opens_with_who_the_writer_is_and_goes_on_from_then(run: RunDirectory):
    minute = 60 * SECOND
    line = b'["sample",%d,0,1,1]\n'
    for number in range(4):
        lines = [line % t for t in range(number * minute, (number + 1) * minute, SECOND // 100)]
        about = wire.encode("device", 0, 0, "uuid") if number == 0 else b""
        append(run, head(number, t_ns=number * minute) + about + b"".join(lines), number)

    records = [record for _, record in Follower(run, since_ns=210 * SECOND).poll()]

    assert window.last_ns(run) == 4 * minute - SECOND // 100
    assert [record for record in records if not isinstance(record, Sample)] == [Device(0, 0, "uuid")]
    samples = [record.t_ns for record in records if isinstance(record, Sample)]
    assert 180 * SECOND <= samples[0] <= 205 * SECOND
    assert samples == list(range(samples[0], 4 * minute, SECOND // 100))


def test_the_agents_own_journal_is_followed_over_its_segments(run: RunDirectory):
    journal = Journal(str(run.journal), "rank", "a-run", 7, 70, segment_bytes=8000)
    follower = Follower(run)
    found = []
    for t in range(1000):
        journal.append("mark", t, "x")
        journal.flush()
        if t % 7 == 0:
            found += times(follower.poll())
    journal.close()

    assert len(list_segments(run.journal)[WHO]) > 2
    assert found + times(follower.poll()) == list(range(1000))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1), st.integers(1, 5)),
        st.tuples(st.just("tear"), st.integers(0, 1), st.integers(1, 12)),
        st.tuples(st.just("rotate"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("fold"), st.integers(0, 1), st.integers(0, 3)),
        st.tuples(st.just("poll"), st.integers(0, 1), st.sampled_from([0, 1])),
    ),
    max_size=60,
)


class Pen:
    """A writer of one journal, and what it has written."""

    def __init__(self, run: RunDirectory, who: str) -> None:
        self.run, self.who, self.number, self.rest = run, who, 0, b""
        self.marks: list[int] = []
        self.samples = 0
        append(run, head(), 0, who)

    def write(self, t_ns: int) -> None:
        line = wire.encode("mark", t_ns, self.who) + wire.encode("sample", t_ns, 0, t_ns, t_ns)
        append(self.run, self.rest + line, self.number, self.who)
        self.marks.append(t_ns)
        self.samples += 1
        self.rest = b""

    def tear(self, t_ns: int, size: int) -> None:
        line = self.rest or wire.encode("mark", t_ns, self.who)
        if not self.rest:
            self.marks.append(t_ns)
        append(self.run, line[:size], self.number, self.who)
        self.rest = line[size:]

    def rotate(self) -> None:
        append(self.run, self.rest, self.number, self.who)
        self.rest = b""
        self.number += 1
        append(self.run, head(self.number), self.number, self.who)

    def fold(self, width: int) -> None:
        for segment in list_segments(self.run.journal)[self.who][:-1]:
            name = self.run.journal / segment.name
            if width == 3 or not segment.folded:
                fold_segment(name, 60 * SECOND if width == 3 else SECOND)
                return


class Reader:
    """A follower, and what it was given."""

    def __init__(self, run: RunDirectory) -> None:
        self.follower = Follower(run)
        self.marks: dict[str, list[int]] = {}
        self.samples: Counter[str] = Counter()
        self.who: dict[int, str] = {}

    def take(self, limit_bytes: int | None) -> None:
        for header, record in self.follower.poll(limit_bytes):
            if isinstance(record, Mark):
                self.marks.setdefault(record.name, []).append(record.t_ns)
            elif isinstance(record, Sample):
                self.samples[header.host] += 1
            elif isinstance(record, Samples):
                self.samples[header.host] += record.count


@given(steps=STEPS)
def test_nothing_comes_twice_and_nothing_is_lost_in_any_order_of_events(tmp_path_factory, steps):
    run = new_run(tmp_path_factory.mktemp("run") / "a-run")
    pens = [Pen(run, "rank-1-1"), Pen(run, "driver")]
    live = Reader(run)
    for clock, (step, which, size) in enumerate(steps):
        pen, t_ns = pens[which], clock * SECOND // 3
        match step:
            case "write":
                for i in range(size):
                    pen.write(t_ns + i)
            case "tear":
                pen.tear(t_ns, size)
            case "rotate":
                pen.rotate()
            case "fold":
                pen.fold(size)
            case "poll":
                live.take(1 if size else None)
    for pen in pens:
        pen.rotate()
    fresh = Reader(run)
    for reader in (live, fresh):
        reader.take(None)
        reader.follower.close()

    written = {pen.who: pen.marks for pen in pens if pen.marks}
    assert live.marks == written
    assert fresh.marks == written
    assert live.samples.total() == fresh.samples.total() == sum(pen.samples for pen in pens)
    assert all(each == Losses() for each in live.follower.losses.values())


LINES = [
    wire.encode("sample", 1, 0, 10, 20),
    wire.encode("begin", 2, 1, 1, None, 9, "forward", "m", 3, [[0, 1, 2]]),
    wire.encode("end", 3, 2, 1, None, [[0, 1, 2, 3, 4, True]]),
    wire.encode("processes", 4, 5, 0, [[1, None, "C", "hidden"]]),
    wire.encode("mark", 5, "x", "y"),
]


@given(st.lists(st.integers(0, len(LINES) - 1), min_size=1, max_size=12), st.data())
def test_a_flipped_bit_costs_the_lines_it_touches_only(tmp_path_factory, picks, data):
    run = new_run(tmp_path_factory.mktemp("run") / "a-run")
    lines = [*(LINES[pick] for pick in picks), marks(99)]
    body = bytearray(b"".join(lines))
    at = data.draw(st.integers(0, len(body) - 1))
    last = body[at] == ord("\n")
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    append(run, head() + bytes(body))
    append(run, head(1), 1)
    touched = bytes(body[:at]).count(b"\n")
    before, after = lines[:touched], lines[touched + (2 if last else 1) :]

    with Follower(run) as follower:
        found = [record for _, record in follower.poll()]

    assert found[: len(before)] == [decode_line(line) for line in before]
    assert found[len(found) - len(after) :] == [decode_line(line) for line in after]
    lost = losses(follower)
    assert len(before) + len(after) <= len(found) <= len(lines) + 1
    assert len(found) + lost.corrupt_lines + lost.unknown_lines >= len(lines) - last


@given(st.binary(max_size=3000), st.booleans())
def test_garbage_never_stops_a_follower(tmp_path_factory, garbage: bytes, headed: bool):
    run = new_run(tmp_path_factory.mktemp("run") / "a-run")
    append(run, (head() if headed else b"") + garbage)
    append(run, head(1) + marks(99), 1)
    with Follower(run) as follower:
        found = times(follower.poll())

    assert found[-1] == 99


def test_edges_are_records_like_all_others(run: RunDirectory):
    append(run, head() + LINES[1])

    [(_, begin)] = Follower(run).poll()
    assert begin == Begin(2, 1, 1, None, 9, "forward", "m", 3, [(0, 1, 2)])

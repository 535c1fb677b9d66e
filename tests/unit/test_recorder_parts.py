"""Who records, until when, and what becomes of lines that the disk refuses."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpumem_tui.agent import wire
from gpumem_tui.agent.journal import Journal
from gpumem_tui.recorder.election import Election
from gpumem_tui.recorder.keepers import Keepers
from gpumem_tui.recorder.output import WAITING_LINES, Output
from gpumem_tui.recorder.stop import Stop
from gpumem_tui.records import Dropped, Memory, decode_line


def lines(folder):
    """The records of all the driver's segments, in order."""
    found = []
    for path in sorted(folder.glob("driver.*")):
        found += [decode_line(line) for line in path.read_bytes().splitlines()[1:]]
    return found


def test_only_one_of_two_wins_the_election_until_it_resigns(tmp_path):
    first, second = Election(tmp_path), Election(tmp_path)

    assert first.stand()
    assert not second.stand()
    first.resign()
    assert second.stand()
    second.resign()


def test_the_lock_is_free_when_its_holder_was_killed(tmp_path):
    code = (
        "import sys; from pathlib import Path; from gpumem_tui.recorder.election import Election; "
        "e = Election(Path(sys.argv[1])); print(e.stand(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        held = holder.stdout.readline().strip()
        lost = Election(tmp_path).stand()
        holder.kill()
        holder.wait()
    mine = Election(tmp_path)

    assert (held, lost) == ("True", False)
    assert mine.stand()
    mine.resign()


@pytest.fixture
def keeper(tmp_path):
    """A process that stands for a keeper, and its journal."""
    with subprocess.Popen(["sleep", "60"]) as process:
        ticks = wire.started_ticks(process.pid)
        journal = Journal(str(tmp_path), "keeper", "run", process.pid, ticks)
        # the journal's header names its writer: here, that other process
        path = Path(journal.path)
        head = wire.header("keeper", "run", 0) | {"pid": process.pid, "started_ticks": ticks}
        path.write_bytes(wire.encode_header(head))
        yield process, ticks, journal
        journal.close()
        process.kill()


def test_a_keeper_is_at_work_until_its_exit_line(tmp_path, keeper):
    process, ticks, journal = keeper
    keepers = Keepers(tmp_path, process.pid, ticks)
    before = keepers.look()
    journal.append("start", 1, 4711, 99)
    journal.append("exit", 2, 0, None)
    journal.flush()

    assert before
    assert not keepers.look()
    assert keepers.roots == {(4711, 99)}
    assert not keepers.died


def test_a_keeper_that_was_killed_has_died_without_a_word(tmp_path, keeper):
    process, ticks, _ = keeper
    keepers = Keepers(tmp_path, process.pid, ticks)
    keepers.look()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # still a zombie

    assert not keepers.look()
    assert keepers.died


def test_a_second_keeper_that_joins_keeps_the_recording_open(tmp_path, keeper):
    keepers = Keepers(tmp_path, 2**22 + 1, 1)  # the first is long gone
    joined = keepers.look()

    assert joined
    assert keepers.died


def test_a_line_is_read_once_it_is_whole(tmp_path, keeper):
    process, ticks, journal = keeper
    keepers = Keepers(tmp_path, process.pid, ticks)
    line = wire.encode("exit", 2, 0, None)
    path = Path(journal.path)
    with path.open("ab") as file:
        file.write(line[:9])
    torn = keepers.look()
    with path.open("ab") as file:
        file.write(line[9:])

    assert torn
    assert not keepers.look()


def test_a_recorder_continues_after_the_segments_of_the_one_before(tmp_path):
    for index in range(2):
        output = Output(tmp_path, "run", agent="1")
        output.write([Memory(1, 0, index)])
        output.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["driver.0000.jsonl", "driver.0001.jsonl"]
    assert [record.index for record in lines(tmp_path)] == [0, 1]


def test_lines_wait_for_a_disk_that_refuses_even_the_first_segment(tmp_path):
    folder = tmp_path / "journal"
    output = Output(folder, "run", agent="1")
    output.write([Memory(1, 0, 1)])
    folder.mkdir()
    output.write([Memory(2, 0, 2)])
    output.close()

    assert [record.index for record in lines(folder)] == [1, 2]


def test_what_waited_too_long_is_counted_and_told(tmp_path):
    folder = tmp_path / "journal"
    output = Output(folder, "run", agent="1")
    output.write(Memory(1, 0, index) for index in range(WAITING_LINES + 5))
    folder.mkdir()
    output.write([])
    output.close()
    written = lines(folder)

    assert isinstance(written[0], Dropped) and written[0].samples == 5
    assert [record.index for record in written[1:]] == list(range(5, WAITING_LINES + 5))


@pytest.fixture
def full_disk():
    """A function that makes files end at a size, as a full disk would; undone with the test."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(size=None):
        resource.setrlimit(resource.RLIMIT_FSIZE, (before[0] if size is None else size, before[1]))

    yield limit
    limit()
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_fills_up_loses_no_line_that_it_has_room_for_later(tmp_path, full_disk):
    output = Output(tmp_path, "run", agent="1")
    output.write([Memory(0, 0, 0)])
    full_disk((tmp_path / "driver.0000.jsonl").stat().st_size + 1000)
    for index in range(1, 200):
        output.write([Memory(index, 0, index)])
    while_full = len(lines(tmp_path))
    full_disk()
    output.write([Memory(200, 0, 200)])
    output.close()
    numbers = [record.index for record in lines(tmp_path) if isinstance(record, Memory)]

    assert while_full < 100
    assert numbers == list(range(201))


def test_a_wish_to_stop_ends_the_sleep_that_comes_after_it():
    stop = Stop()
    stop.set()
    stop.set()
    stop.wait(60)

    assert stop.is_set

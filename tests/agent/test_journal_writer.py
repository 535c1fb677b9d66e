"""The writer hands whole lines to the disk, and a disk that refuses costs lines and nothing else."""

import errno
import os

import pytest

from gpumem_tui import records
from gpumem_tui.agent import journal as journals
from gpumem_tui.agent.journal import Journal


def lines_of(folder):
    return [
        records.decode_line(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_bytes().splitlines()[1:]
    ]


def open_journal(folder, **options):
    return Journal(str(folder), "driver", "a-run", **options)


class Disk:
    """Stands for ``os.write``: takes so many bytes, then refuses until there is room again."""

    def __init__(self, monkeypatch, room):
        self.room = room
        self._write = os.write
        monkeypatch.setattr(journals.os, "write", self.write)

    def write(self, fd, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(fd, data[: self.room])
        self.room -= written
        return written


def test_lines_come_back_in_order_after_a_header(tmp_path):
    journal = open_journal(tmp_path)
    journal.append("bye", 1, "one")
    journal.append("bye", 2, "two")
    journal.close()

    assert lines_of(tmp_path) == [records.Bye(1, "one"), records.Bye(2, "two")]


def test_a_segment_is_closed_beyond_its_size_and_each_has_its_header(tmp_path):
    journal = open_journal(tmp_path, segment_bytes=5000)
    for number in range(500):
        journal.append("bye", number)
        journal.flush()
    journal.close()

    segments = sorted(tmp_path.glob("*.jsonl"))
    heads = [records.decode_header(path.read_bytes().splitlines()[0]) for path in segments]

    assert len(segments) > 2
    assert [head.segment for head in heads] == list(range(len(segments)))
    assert [line.t_ns for line in lines_of(tmp_path)] == list(range(500))


def test_a_second_writer_of_the_same_name_continues_the_numbers(tmp_path):
    open_journal(tmp_path).close()
    open_journal(tmp_path).close()

    assert [path.name for path in sorted(tmp_path.glob("*"))] == ["driver.0000.jsonl", "driver.0001.jsonl"]


@pytest.mark.parametrize("room", range(0, 60, 7))
def test_a_full_disk_costs_at_most_the_torn_line(tmp_path, monkeypatch, room):
    journal = open_journal(tmp_path)
    disk = Disk(monkeypatch, room)
    for number in range(5):
        journal.append("bye", number)
        journal.flush()
    disk.room = 1 << 20
    journal.append("bye", 5)

    assert journal.flush()
    assert [line.t_ns for line in lines_of(tmp_path) if line is not None] == [0, 1, 2, 3, 4, 5]


def test_lines_beyond_the_backlog_are_dropped_and_told_when_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(journals, "BACKLOG_BYTES", 100)
    journal = open_journal(tmp_path)
    disk = Disk(monkeypatch, 0)
    for number in range(50):
        journal.append("bye", number)
        journal.flush()
    disk.room = 1 << 20
    journal.append("bye", 99)
    journal.flush()

    lines = lines_of(tmp_path)
    dropped = [line for line in lines if isinstance(line, records.Dropped)]

    assert len(dropped) == 1
    assert dropped[0].samples + len(lines) - 1 == 51


def test_a_forked_child_gives_the_journal_up_without_writing(tmp_path):
    journal = open_journal(tmp_path)
    journal.append("bye", 1)
    journal.abandon()

    assert lines_of(tmp_path) == []


def test_a_descriptor_that_another_file_has_got_is_neither_written_to_nor_closed(tmp_path):
    folder, users = tmp_path / "journal", tmp_path / "the user's"
    folder.mkdir()
    journal = open_journal(folder)
    journal.append("word", 1, "first", "")
    journal.flush()

    os.close(journal._fd)  # as a program does that closes whatever it has not opened
    with users.open("wb") as file:
        assert file.fileno() == journal._fd
        journal.append("word", 2, "second", "")
        journal.flush()
        journal.close()
        file.write(b"whole")

    assert users.read_bytes() == b"whole"
    assert [line.code for line in lines_of(folder)] == ["first", "second"]

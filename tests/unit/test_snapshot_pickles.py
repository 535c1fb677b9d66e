"""Memory snapshots on disk: what PyTorch dumps is read, and a pickle of more than plain data is refused."""

import os
import pickle
import struct

import pytest

from gpumem_tui.analysis.snapshot import read_snapshot
from gpumem_tui.errors import BadInput
from gpumem_tui.sources import snapshots, unpickling
from gpumem_tui.sources.snapshots import UnreadableSnapshot, is_pickle, read_plain

SEGMENT = {
    "device": 0,
    "address": 1 << 40,
    "total_size": 4096,
    "stream": 0,
    "segment_type": "large",
    "segment_pool_id": (0, 0),
    "is_expandable": False,
    "frames": [{"name": "f", "filename": "x.py", "line": 3}],
    "blocks": [{"size": 4096, "requested_size": 4000, "state": "active_allocated", "frames": []}],
}
SNAPSHOT = {
    "segments": [SEGMENT],
    "device_traces": [[{"action": "alloc", "size": 1}, {"action": "oom", "size": 77, "device_free": 5}]],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False, "max_split_size": -1},
    "external_annotations": [],
}


class Runs:
    """A pickle that makes a file when it is loaded by the usual means."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def nested(depth):
    """Lists in lists, as opcodes: EMPTY_LIST … APPEND …"""
    return b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."


def laughs():
    """Ten lists of ten, eight deep, by references: small on disk, and endless for who walks it."""
    value = ["x"] * 10
    for _ in range(8):
        value = [value] * 10
    return pickle.dumps({"segments": value, "device_traces": []}, 4)


def many_blocks():
    """A small segment and one of four million blocks, which would just be taken alone."""
    sizes = (1000, unpickling.MOST_BLOCKS - 500)
    block = {"size": 1, "state": "inactive"}
    return pickle.dumps([{"total_size": 1 << 40, "blocks": [block] * size} for size in sizes], 4)


BOMBS = {
    "a call": lambda folder: pickle.dumps(Runs(folder / "made"), 4),
    "a class of ours": lambda folder: b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "a persistent reference": lambda folder: b"\x80\x04S'a'\nQ.",
    "a memo index of four billion": lambda folder: b"\x80\x04]r" + struct.pack("<I", 0xFFFFFFF0) + b".",
    "a byte array of a terabyte": lambda folder: b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
    "a text of a terabyte": lambda folder: b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",
    "a frame of a terabyte": lambda folder: b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    "a million lists in each other": lambda folder: nested(1_000_000),
    "references that multiply": lambda folder: laughs(),
    "a torn end": lambda folder: pickle.dumps(SNAPSHOT, 4)[:-20],
    "no opcode": lambda folder: b"\x80\x04\xff\xff",
    "another object": lambda folder: pickle.dumps({"weights": [1, 2]}, 4),
}


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_snapshot_comes_back_as_it_was_written(tmp_path, protocol):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT, protocol))
    read = read_snapshot(read_plain(str(path)))

    assert is_pickle(str(path))
    assert (read.segments[0].total_bytes, read.segments[0].blocks[0].requested_bytes) == (4096, 4000)
    assert read.failed[0].requested_bytes == 77
    assert read.expandable_segments is False


@pytest.mark.parametrize("name", BOMBS)
def test_anything_else_is_refused_in_one_line_and_does_nothing(tmp_path, name):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(BOMBS[name](tmp_path))

    with pytest.raises((UnreadableSnapshot, BadInput)) as refused:
        read_snapshot(read_plain(str(path)))

    assert len(str(refused.value).splitlines()) == 1
    assert not (tmp_path / "made").exists()


def test_what_would_be_called_is_named(tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(BOMBS["a call"](tmp_path))

    with pytest.raises(UnreadableSnapshot, match=r"refused: it wants to load posix\.mkdir"):
        read_plain(str(path))


def test_more_blocks_than_any_card_has_are_refused_as_such(tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(many_blocks())

    with pytest.raises(UnreadableSnapshot, match="more than 4,000,000 blocks"):
        read_plain(str(path))


def test_a_file_larger_than_any_snapshot_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "LARGEST_BYTES", 10)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(SNAPSHOT, 4))

    with pytest.raises(UnreadableSnapshot, match="larger than any"):
        read_plain(str(path))


@pytest.mark.parametrize("start", [b"", b"\x80", b"\x80\x09", b"step 1\n", b"\x1f\x8b"])
def test_a_log_is_no_pickle(tmp_path, start):
    path = tmp_path / "log"
    path.write_bytes(start)

    assert not is_pickle(str(path))
    assert not is_pickle(str(tmp_path / "nosuch"))

"""Memory snapshots that lie in a recording: read as plain data, and from nowhere else."""

import json
import pickle

import pytest

from gpumem_tui.errors import BadInput, GpumemError
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.session import Recording, Staged

SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "address": 1 << 30,
            "total_size": 2 << 20,
            "stream": 0,
            "segment_type": "small",
            "blocks": [
                {"size": 1 << 20, "state": "active_allocated"},
                {"size": 1 << 20, "state": "inactive"},
            ],
        }
    ],
    "device_traces": [],
}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    for name in ("journal", "failures"):
        (folder / name).mkdir(parents=True)
    facts = {"schema": 1, "run": "kept", "command": ["x"], "cwd": "/", "host": "h", "user": "u"}
    facts |= {"boot": None, "wall_ns": 1, "t_ns": 1, "version": "0", "interactive": False}
    facts |= {"keeper_pid": 1, "keeper_ticks": 1}
    (folder / "run.json").write_text(json.dumps(facts))
    return RunDirectory(folder)


@pytest.mark.parametrize("feed", [Recording, Staged])
def test_a_dump_in_the_recording_is_read(run, feed):
    (run.path / "failures" / "1-0.pickle").write_bytes(pickle.dumps(SNAPSHOT))
    (segment,) = feed(run).reach.read_snapshot("failures/1-0.pickle").segments

    assert (segment.pool, segment.total_bytes, len(segment.blocks)) == ("small", 2 << 20, 2)


@pytest.mark.parametrize("name", ["../outside.pickle", "/etc/passwd", "failures/../../outside.pickle"])
def test_a_record_cannot_name_a_file_elsewhere(run, name):
    (run.path.parent / "outside.pickle").write_bytes(pickle.dumps(SNAPSHOT))

    with pytest.raises(BadInput, match="does not lie in this recording"):
        Recording(run).reach.read_snapshot(name)


def test_a_dump_that_is_gone_is_one_line(run):
    with pytest.raises(GpumemError, match="cannot be read"):
        Recording(run).reach.read_snapshot("failures/gone.pickle")

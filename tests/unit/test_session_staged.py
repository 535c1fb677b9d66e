"""A big recording opens by its end, and is whole a little later."""

import time

from gpumem_tui.agent.journal import Journal
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.session import Staged, staged

SECOND = 10**9


def record(path, hours):
    """A run of so many hours, a sample every ten seconds, its memory growing by a byte a sample."""
    run = RunDirectory(path)
    for folder in (run.journal, run.rings, run.failures):
        folder.mkdir(parents=True)
    run.write_facts(
        RunFile(run="r", command=["x"], cwd="/", host="h", user="u", boot="other", wall_ns=1, t_ns=1,
                version="0", interactive=False, keeper_pid=1, keeper_ticks=1)
    )  # fmt: skip
    journal = Journal(str(run.journal), "rank", "r", 7, 1, segment_bytes=1 << 16)
    journal.append("torch", 1, "2", "cuda", "13", "native", "", True)
    journal.append("device", 1, 0, "aa", None, "card", 1 << 30, "uuid")
    for index in range(hours * 360):
        journal.append("sample", (1 + index * 10) * SECOND, 0, 1000 + index, 5000 + index)
        if index % 500 == 0:
            journal.flush()
    journal.close()
    return run


def test_the_last_minutes_come_first_and_the_whole_follows(tmp_path, monkeypatch):
    monkeypatch.setattr(staged, "BIG_BYTES", 1)
    run = record(tmp_path / "r", hours=20)
    feed = Staged(run)
    feed.read(), feed.read()  # the first frame is drawn, so that the whole need not wait for it
    until = time.monotonic() + 30
    while feed._whole is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    (whole,) = feed.read().devices
    (end,) = feed._end.read().devices

    assert whole.curves[0].allocated.low[0] == 1000
    assert end.curves[0].allocated.low[0] > 1000
    assert whole.curves[0].allocated.last[-1] == end.curves[0].allocated.last[-1] == 1000 + 20 * 360 - 1


def test_until_then_pictures_say_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(staged, "BIG_BYTES", 1)
    monkeypatch.setattr(Staged, "_read_whole", lambda self, run: None)
    feed = Staged(record(tmp_path / "r", hours=1))

    assert feed.read().health.notes == ("the history before the last 30 min 0 s is still being read",)


def test_a_small_recording_is_read_at_once(tmp_path):
    assert Staged(record(tmp_path / "r", hours=1)).read().health.notes == ()

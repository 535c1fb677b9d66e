"""A recording played from its start: at every moment as it was then, and at its end as it is."""

import shutil

import longrun
import pytest

from gpumem_tui.agent import wire
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.session import Playback, Recording

SECOND = longrun.SECOND


class Held(Playback):
    """Stands at a moment that a test sets, in seconds."""

    second = 0.0

    def moment_ns(self):
        return self.file.t_ns + int(self.second * SECOND)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return longrun.write(
        tmp_path_factory.mktemp("played") / "r", hours=0.1, ranks=2, devices=2, seed=3, whole_s=120
    )


def test_it_goes_on_as_the_run_did(run):
    feed = Held(run)
    seen = []
    for second in (0.5, 100, 300.5):
        feed.second = second
        state = feed.read()
        seen.append((state.facts.life, (state.now_ns - longrun.START_NS) / SECOND, state.ranks[0].step))

    assert seen == [(Life.RUNNING, 0.5, None), (Life.RUNNING, 100, None), (Life.RUNNING, 300.5, 601)]


def test_its_figures_are_those_of_then(run):
    feed = Held(run)
    feed.second = 300.0
    allocated = feed.read().devices[1].ledger.ranks[0].allocated.bytes

    assert allocated == longrun.levels(1, 299.9, 3)[0]


def test_at_its_end_it_is_the_recording(run):
    feed = Held(run)
    feed.second = 10_000
    played, whole = feed.read(), Recording(run).read()

    assert (played.facts, played.devices, played.phases) == (whole.facts, whole.devices, whole.phases)


def test_the_past_of_what_has_been_played_can_be_seen_and_nothing_later(run):
    feed = Held(run)
    feed.second = 300
    latest = feed.read()
    past = feed.read_at(longrun.START_NS + 250 * SECOND, latest.now_ns - 100 * SECOND, latest.now_ns)
    beyond = feed.read_at(longrun.START_NS + 350 * SECOND, latest.now_ns - 100 * SECOND, latest.now_ns)

    assert past.devices[0].ledger.t_ns == longrun.START_NS + int(249.9 * SECOND)
    assert beyond.now_ns == latest.now_ns


def test_unreadable_lines_are_counted(run, tmp_path):
    copy = longrun.write(tmp_path / "r", hours=0.01, ranks=1, devices=1)
    path = next(copy.journal.glob("rank-*"))
    path.write_bytes(path.read_bytes().replace(b'["sample"', b'["sam\x00ple"', 1))
    feed = Held(copy)
    feed.second = 10_000

    assert feed.read().health.corrupt_lines == 1


def test_a_run_that_has_ended_is_one_picture_until_more_of_it_is_found(run, tmp_path):
    copied = RunDirectory(shutil.copytree(run.path, tmp_path / "r"))
    recording = Recording(copied)
    ended = recording.read()
    again = recording.read()
    last = max(copied.journal.glob("rank-*.jsonl"))
    with last.open("ab") as file:
        file.write(wire.encode("mark", ended.now_ns, "late", None, None))
    later = recording.read()

    assert again is ended
    assert "late" in later.events[-1].text

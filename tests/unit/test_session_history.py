"""The picture of any moment: what was so then, near the end and long ago, read by seeking."""

import itertools
import json
import subprocess
import sys

import longrun
import msgspec
import pytest

from gpumem_tui import records
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import Severity
from gpumem_tui.session import Recording, Staged, history, staged
from gpumem_tui.session.bands import MOST, Bands
from gpumem_tui.session.phasetable import PhaseMarks

SECOND = longrun.SECOND
GIB = longrun.GIB


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Two hours of three ranks on two cards, the last ten minutes raw."""
    path = tmp_path_factory.mktemp("long") / "r"
    made = Recording(longrun.write(path, hours=2, ranks=3, devices=2, seed=1))
    made.read()
    return made


def at(recording, second, *, window_s=60):
    moment = longrun.START_NS + int(second * SECOND)
    return recording.read_at(moment, moment - window_s * SECOND // 2, moment + window_s * SECOND // 2)


def allocated(state, device):
    return {share.rank: share.allocated.bytes for share in state.devices[device].ledger.ranks}


def test_the_ledger_is_that_of_the_moment(recording):
    second = 7000.0
    ranks = (0, 2)
    state = at(recording, second)
    ledger = state.devices[0].ledger

    assert state.now_ns == longrun.START_NS + int(second * SECOND)
    assert state.facts.life is Life.RUNNING
    assert state.facts.ended_ns is None
    assert ledger.t_ns == longrun.START_NS + int((second - 0.1) * SECOND)
    assert allocated(state, 0) == {rank: longrun.levels(rank, second - 0.1, 1)[0] for rank in ranks}
    assert sum(size for _, size in ledger.parts()) == ledger.total.bytes


def test_long_ago_the_last_reading_of_a_folded_stretch_stands(recording):
    state = at(recording, 3005)
    bucket_end = 3000 - 0.1

    assert state.devices[1].ledger.t_ns == longrun.START_NS + int(bucket_end * SECOND)
    assert state.devices[1].ledger.free.bytes is not None
    assert {rank.life for rank in state.ranks} == {Life.RUNNING}


def test_a_rank_that_has_just_written_much_has_its_levels_of_the_moment(tmp_path, monkeypatch):
    sparse = longrun._rank_second

    def dense(rank, at, seed):
        edges = []
        for number in range(1000 if at == 6 else 0):
            t_ns, span = longrun.START_NS + at * SECOND + number * SECOND // 1000, 10_000 + number
            edges.append(records.Begin(t_ns, 2 * span, span, 1, 1, "forward", "x" * 200, 12, [(0, GIB, GIB)]))
            edges.append(records.End(t_ns, 2 * span + 1, span, None, [(0, GIB, GIB, GIB, GIB, True)]))
        told = [line for line in sparse(rank, at, seed) if not edges or isinstance(line, records.Begin)]
        return sorted((*told, *edges), key=lambda line: line.t_ns)

    monkeypatch.setattr(longrun, "_rank_second", dense)
    monkeypatch.setattr(history, "STRETCH_BYTES", 0)
    made = Recording(longrun.write(tmp_path / "r", hours=10 / 3600, ranks=1, devices=1))
    made.read()
    (rank,) = at(made, 6.7).ranks

    assert [level.allocated_bytes for level in rank.levels] == [longrun.levels(0, 5.9)[0]]


@pytest.mark.parametrize(("second", "strangers"), [(1000, []), (5000, [9_000])])
def test_the_processes_are_those_of_the_moment(recording, second, strangers):
    state = at(recording, second)

    assert [row.pid for row in state.processes if not row.ours and row.rank is None] == strangers
    assert [row.rank for row in state.processes if row.rank is not None] == [0, 2, 1]


@pytest.mark.parametrize("second", [6700.1, 6900.3, 7150.3])
def test_the_phases_that_were_open_and_the_step_are_those_of_the_moment(recording, second):
    (rank, *_) = at(recording, second).ranks

    assert [span.phase for span in rank.spans] == ["train", longrun.phase_at(second)]
    if longrun.phase_at(second) != "eval":
        assert rank.step == int(second / longrun.STEP_S)


def test_a_phase_that_began_long_before_is_still_open(recording):
    (rank, *_) = at(recording, 1234).ranks

    assert (rank.spans[0].phase, rank.spans[0].since_ns) == ("train", longrun.START_NS)


def test_curves_and_phases_of_a_short_stretch_are_whole_and_reach_beyond_the_moment(recording):
    state = at(recording, 6900, window_s=10)
    curve = state.devices[0].curves[0].allocated
    inside = [t for t in curve.t_ns if abs(t - state.now_ns) <= 5 * SECOND]
    steps = {band.step for band in state.bands if band.phase == "forward" and band.pid == longrun.FIRST_PID}

    assert len(inside) >= 95
    assert max(inside) > state.now_ns
    assert {int(6900 / longrun.STEP_S) + n for n in range(-8, 8)} <= steps


def test_phases_of_a_stretch_lie_within_one_that_began_long_before(recording):
    mine = [band for band in at(recording, 7195, window_s=10).bands if band.pid == longrun.FIRST_PID]
    outer = [band for band in mine if band.phase == "train"]
    inner = [band for band in mine if band.phase != "train" and band.since_ns >= outer[0].since_ns]

    assert {band.phase for band in inner} >= {"eval"}
    assert max(band.depth for band in outer) < min(band.depth for band in inner)


def test_a_long_stretch_has_the_curves_of_the_whole_run(recording, monkeypatch):
    monkeypatch.setattr("gpumem_tui.session.history.STRETCH_BYTES", 0)
    state = at(recording, 3600, window_s=7200)
    whole = recording.picture().devices[0].curves[0].allocated

    assert state.devices[0].curves[0].allocated == whole
    assert state.devices[0].ledger.free.bytes is not None


def test_a_stretch_that_takes_time_is_read_finely_on_request(recording, monkeypatch):
    monkeypatch.setattr("gpumem_tui.session.history.STRETCH_BYTES", 10_000)
    moment = longrun.START_NS + 6900 * SECOND
    asked = moment, moment - 30 * SECOND, moment + 30 * SECOND
    quick, thorough = (recording.read_at(*asked, thorough) for thorough in (False, True))
    points = [
        sum(asked[1] <= t <= asked[2] for t in state.devices[0].curves[0].allocated.t_ns)
        for state in (quick, thorough)
    ]

    assert (quick.coarse, thorough.coarse) == (True, False)
    assert points[0] < 600 <= points[1]


def test_early_events_are_there_again_however_many_came_since(tmp_path):
    made = Recording(longrun.write(tmp_path / "r", hours=1, ranks=1, devices=1, seed=1))
    made.read()
    for second in range(0, 3600, 5):
        loud = Severity.WARNING if second % 1000 == 0 else Severity.INFO
        made.happenings.add(longrun.START_NS + second * SECOND, loud, f"at {second}")
    early = at(made, 102)

    assert early.events[-1].text == "at 100"
    assert early.next_event_ns == longrun.START_NS + 105 * SECOND
    assert early.earlier_events == 0
    assert {"at 1000", "at 2000"} < {event.text for event in made.picture().marked}
    assert made.picture().earlier_events > 300


def test_at_the_end_it_is_the_picture_of_the_end(recording):
    assert at(recording, 7200) == recording.picture()


def test_events_after_the_moment_have_not_happened(recording):
    latest = recording.picture()
    middle = latest.events[len(latest.events) // 2].t_ns
    state = recording.read_at(middle, middle - SECOND, middle + SECOND)

    assert 0 < len(state.events) < len(latest.events)
    assert all(event.t_ns <= middle for event in state.events)


def test_the_phase_table_grows_with_the_moment(recording):
    counts = [sum(row.count for row in at(recording, second).phases) for second in (5, 600, 3600, 7100)]

    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


DAY = r"""
import json, re, sys, time
from pathlib import Path
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.session import Staged

began = time.thread_time()
feed = Staged(RunDirectory(Path(sys.argv[1])))
state = feed.read()
first = time.thread_time() - began
while feed._whole is None:
    time.sleep(0.05)
feed.read()
took = []
for second in map(int, sys.argv[2:]):
    moment, half = state.facts.started_ns + second * 10**9, 150 * 10**9
    began = time.thread_time()
    past = feed.read_at(moment, moment - half, moment + half)
    took.append(time.thread_time() - began)
    assert len(past.ranks) == len(past.devices) == 8
kib = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])  # not ru_maxrss: a parent's
print(json.dumps([first, took, kib / 1024]))
"""


@pytest.mark.slow
def test_a_day_of_eight_ranks_opens_at_once_and_shows_any_moment_in_a_tenth_of_a_second(tmp_path):
    run = longrun.write(tmp_path / "day", hours=24, ranks=8, devices=8)
    moments = ["60", "20000", "43210", "80000", "86000", "86390"]
    told = subprocess.check_output([sys.executable, "-c", DAY, str(run.path), *moments], text=True)
    first, took, resident_mib = json.loads(told)
    print(
        f"first picture {first:.2f} s, moments {min(took):.3f} to {max(took):.3f} s, {resident_mib:.0f} MiB"
    )

    assert first < 2
    assert max(took) < 0.4
    assert resident_mib < 200


def test_before_the_whole_has_been_read_a_moment_of_the_first_minutes_can_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(staged, "BIG_BYTES", 1)
    monkeypatch.setattr(Staged, "_read_whole", lambda self, run: None)
    feed = Staged(longrun.write(tmp_path / "r", hours=1, ranks=1, devices=1, seed=1))
    feed.read()

    assert allocated(at(feed, 100), 0) == {0: longrun.levels(0, 99.9, 1)[0]}


# --- what is kept for it --------------------------------------------------------------------------


def test_before_the_whole_has_been_read_nothing_is_told_as_the_first_of_its_kind(tmp_path, monkeypatch):
    monkeypatch.setattr(Staged, "_read_whole", lambda self, run: None)
    monkeypatch.setattr(staged, "FIRST_S", (20,))
    run = longrun.write(tmp_path / "r", hours=0.15, ranks=2, devices=2, bucket_s=0)
    early, whole = Staged(run).read(), Recording(run).read()

    assert early.phases
    assert {row.cold for row in early.phases} == {False}
    assert {row.cold for row in whole.phases} == {False, True}
    assert "at first sight" not in " ".join(event.text for event in early.events)
    assert "at first sight" in " ".join(event.text for event in whole.events)


def test_bands_stay_within_their_bound_and_long_ones_are_kept():
    bands = Bands(7)
    step = 0
    for second in range(4000):
        long = second % 400 == 0
        begin = longrun.records.Begin(second * SECOND, step, step, phase="eval" if long else "forward")
        bands.began(begin)
        took = SECOND if long else SECOND // 2
        bands.ended(longrun.records.End(second * SECOND + took, step + 1, step))
        step += 2
    found = bands.all(None)

    assert len(found) <= MOST
    assert found[0].since_ns == 0
    assert found[-1].until_ns == 3999 * SECOND + SECOND // 2
    assert all(a.until_ns <= b.until_ns for a, b in itertools.pairwise(found))


def test_open_spans_are_found_outermost_first():
    bands = Bands(7)
    for number, (phase, since) in enumerate([("train", 1), ("forward", 5)]):
        bands.began(longrun.records.Begin(since, number, number, phase=phase))
    bands.ended(longrun.records.End(9, 3, 1))

    assert [[b.phase for b in bands.open_at(t)] for t in (0, 3, 7, 12)] == [
        [], ["train"], ["train", "forward"], ["train"],
    ]  # fmt: skip


def test_marks_of_a_phase_table_stay_few_and_spread_over_the_run():
    marks = PhaseMarks()
    for second in range(10_000):
        if marks.due(second * SECOND):
            marks.add(second * SECOND, [second])
    kept = [marks.at(second * SECOND) for second in (0, 2500, 5000, 9999)]

    assert len(marks._marks) <= PhaseMarks.MOST
    assert kept[0] == [0]
    assert all(
        abs(found[0] - second) < 400 for found, second in zip(kept, (0, 2500, 5000, 9999), strict=True)
    )


def test_a_picture_of_the_past_can_be_written_like_any_other(recording):
    assert msgspec.to_builtins(at(recording, 5000).facts)["life"] == "running"

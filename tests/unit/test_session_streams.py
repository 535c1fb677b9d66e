"""Whatever writers say, in whatever order: a picture is made, and its parts sum to the whole."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.agent import wire
from gpumem_tui.agent.journal import Journal
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.session import Recording
from gpumem_tui.views import jsonview, plain

NOW = 10**12
sizes = st.none() | st.integers(0, 1 << 36)
times = st.integers(NOW, NOW + 10**10)
pids = st.sampled_from([101, 102, 103])
phases = st.sampled_from(["forward", "backward", "optimizer", "eval"])
reasons = st.sampled_from(["lost: GPU is lost", "no permission", "gibberish"])


def kind(name, *fields):
    """Lines of one kind."""
    return st.tuples(st.just(name), *fields).map(list)


level = st.tuples(st.integers(0, 1), st.integers(0, 1 << 30), st.integers(0, 1 << 30)).map(list)
end_level = st.tuples(*[st.integers(0, 1 << 30)] * 5, st.booleans()).map(lambda t: [t[0] % 2, *t[1:]])
uuids = st.sampled_from([None, "aa", "bb"])
why = st.none() | reasons
paths = st.sampled_from([None, "failures/x.json", "../y"])
messages = st.sampled_from(["NCCL error", "CUDA out of memory. Tried to allocate 2.00 GiB.", ""])
rank_lines = st.one_of(
    kind("device", times, st.integers(0, 1), uuids, st.none(), st.none(), sizes),
    kind("sample", times, st.integers(0, 1), sizes, sizes),
    kind("samples", times, times, st.integers(0, 1), st.just(3), st.just([1, 5, 2]), st.just([3, 9, 4])),
    kind("begin", times, st.integers(1, 60), st.integers(1, 9), st.none(), st.just(1), phases, st.just("N"),
         st.integers(0, 9), st.lists(level, max_size=2)),
    kind("end", times, st.integers(1, 60), st.integers(1, 9), st.sampled_from([None, "KeyError"]),
         st.lists(end_level, max_size=2)),
    kind("rank", times, st.integers(0, 3), st.none(), st.none(), st.none(), st.just("environment")),
    kind("torch", times, st.just("2"), st.just("cuda"), st.none(), st.sampled_from(["native", "pluggable"])),
    kind("failure", times, st.integers(0, 1), sizes, phases, st.integers(0, 9), st.none()),
    kind("exception", times, st.sampled_from(["exception", "out of memory", "outside the allocator", "?"]),
         st.just("RuntimeError"), messages, st.none(), st.none(), paths, st.sampled_from([None, "T"])),
    kind("optimizer", times, st.integers(0, 1), st.sampled_from(["AdamW", "Own"]), sizes, sizes),
    kind("pressure", times, st.integers(0, 1), st.integers(0, 9)),
    kind("stall", times, times, st.none(), st.none(), st.sampled_from([[], ["a.py:1 f"]])),
    kind("word", times, st.just("code"), st.just("a word")),
    kind("bye", times),
)  # fmt: skip
row = st.tuples(pids, sizes, st.just("C"), why).map(list)
rows = st.lists(row, max_size=3, unique_by=lambda r: r[0])
driver_lines = st.one_of(
    kind("gpu", times, st.integers(-1, 1), uuids, st.none(), st.just("x"), sizes, st.none(), st.none(), why),
    kind("memory", times, st.just(5), st.integers(0, 1), sizes, sizes, sizes, sizes, st.just(2), why),
    kind("processes", times, st.just(5), st.integers(0, 1), rows, why),
    kind("process", times, pids, st.just(1), st.none(), st.just("python"), st.just("you")),
    kind("tree", times, st.lists(st.tuples(pids, st.just(1), st.none(), sizes).map(list), max_size=3)),
    kind("host", times, sizes, sizes, sizes),
    kind("kill", times, st.integers(1, 3), st.sampled_from(["cgroup", "node"]),
         st.lists(st.tuples(pids, st.just(1)).map(list), max_size=2)),
    kind("gone", times, pids, st.just(1), st.none() | st.integers(1, 9), st.none() | st.integers(1, 15)),
    kind("memories", times, times, st.integers(0, 1), st.just(2), st.just(9 << 30), st.just([1, 5, 2]),
         st.just([3, 9, 4])),
)  # fmt: skip
keeper_lines = st.one_of(kind("start", times, pids, st.just(1)), kind("exit", times, st.just(1), st.none()))


@given(
    ranks=st.lists(st.lists(rank_lines, max_size=25), max_size=3),
    driver=st.lists(driver_lines, max_size=40),
    keeper=st.lists(keeper_lines, max_size=3),
)
def test_any_stream_gives_a_picture_whose_parts_sum_to_the_whole(tmp_path_factory, ranks, driver, keeper):
    run = RunDirectory(tmp_path_factory.mktemp("run"))
    for folder in (run.journal, run.rings, run.failures):
        folder.mkdir()
    run.write_facts(
        RunFile(run="r", command=["x"], cwd="/", host="h", user="u", boot="other", wall_ns=NOW, t_ns=NOW,
                version="0", interactive=False, keeper_pid=1, keeper_ticks=1)
    )  # fmt: skip
    for pid, lines in zip((101, 102, 103), ranks, strict=False):
        write(run, "rank", lines, pid)
    write(run, "driver", driver)
    write(run, "keeper", keeper, 99)

    state = Recording(run).read()

    for device in state.devices:
        book = device.ledger
        if book.total.bytes is not None and book.free.bytes is not None:
            assert sum(size for _, size in book.parts()) == book.total.bytes
        for share in book.ranks:
            assert (share.outside.bytes is None) == (share.used.bytes is None or share.reserved.bytes is None)
    for failure in state.failures:
        assert failure.findings
        assert failure.headline
    assert [event.t_ns for event in state.events] == sorted(event.t_ns for event in state.events)
    assert json.loads(jsonview.render(state))["run"]["life"] == state.facts.life.value
    assert plain.render(state, cells=80)


def write(run, role, lines, pid=None):
    """A journal of one writer."""
    journal = Journal(str(run.journal), role, "r", pid, 1 if pid else None)
    for line in lines:
        journal.append_line(wire.encode(*line))
    journal.close()

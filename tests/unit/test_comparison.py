"""Runs side by side: what differs, what is compared with what, and what is never concluded."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tui import scripted

from gpumem_tui.analysis.comparison import compare
from gpumem_tui.analysis.factors import changed_words
from gpumem_tui.analysis.provenance import Identity
from gpumem_tui.analysis.rankstate import InputRow, PeakState
from gpumem_tui.records.revision import Revision
from gpumem_tui.units import GIB, MIB
from gpumem_tui.views.report import html, markdown, text
from gpumem_tui.views.report.compared import sheet_of
from gpumem_tui.views.text import width

CLEAN = Revision(commit="0123456789abcdef", dirty=False)


def identity(**changes) -> Identity:
    base = Identity(
        version="0.1.0",
        cwd="/home/me/here",
        protocol="observe",
        reset_peaks=True,
        hertz=10.0,
        revision=CLEAN,
    )
    return msgspec.structs.replace(base, **changes)


def run(name="a", *, phases=None, rank=None, peaks=(9 * GIB, 11 * GIB), told=None, **facts):
    """An ended run of one rank; ``rank``, ``told`` and ``facts`` are changes."""
    ended = scripted.ended().facts
    known = {"run": name, "identity": identity(**(told or {})), **facts}
    one = scripted.rank(
        0, 60, **{"peaks": (PeakState(0, *peaks),), "world_size": 1, "spans": (), **(rank or {})}
    )
    return scripted.with_phases(
        ranks=(one,),
        phases=scripted.phases(0) if phases is None else phases,
        facts=msgspec.structs.replace(ended, **known),
    )


def differing(*states):
    return [factor.name for factor in compare(states).differing]


def warnings(*states):
    return " ".join(compare(states).warnings)


def test_equal_runs_differ_in_nothing():
    assert differing(run(), run("b")) == []
    assert warnings(run(), run("b")) == ""


DIFFERENT = [
    ("command", {"command": ("python", "train.py", "--fp16")}),
    ("code revision", {"told": {"revision": Revision(commit="fedcba9876543210", dirty=False)}}),
    ("seed", {"told": {"seed": "3"}}),
    ("PyTorch", {"rank": {"torch_version": "2.8.0"}}),
    ("Python", {"rank": {"python": "3.13.1"}}),
    ("backend", {"rank": {"backend": "hip", "backend_version": "6.4"}}),
    ("allocator", {"rank": {"allocator": "cudaMallocAsync"}}),
    ("allocator settings", {"rank": {"allocator_settings": "expandable_segments:True"}}),
    ("world size", {"rank": {"world_size": 2}}),
    ("simulated", {"simulated": "1 × 24 GiB"}),
    ("protocol", {"told": {"protocol": "strict"}}),
    ("peaks", {"told": {"reset_peaks": False}}),
    ("warm-up", {"told": {"warmup": "ten steps"}}),
    ("$PYTORCH_ALLOC_CONF", {"told": {"environment": (("PYTORCH_ALLOC_CONF", "x"),)}}),
    ("declared batch", {"told": {"declared": (("batch", "8"),)}}),
    ("label study", {"labels": (("study", "b"),)}),
    ("inputs (dtype and shape)", {"rank": {"inputs": (InputRow("forward", "Bert", "bfloat16[8,512]", 1),)}}),
    ("empty_cache", {"rank": {"marks": (("empty_cache", 3),)}}),
]


@pytest.mark.parametrize(("name", "changes"), DIFFERENT, ids=[name for name, _ in DIFFERENT])
def test_every_factor_is_named(name, changes):
    same = {
        "told": {"seed": "7"},
        "rank": {
            "python": "3.11.7",
            "backend_version": "13.0",
            "allocator_settings": "",
            "inputs": (InputRow("forward", "Bert", "float32[8,512]", 1),),
        },
    }
    merged = {key: {**same.get(key, {}), **value} if key in same else value for key, value in changes.items()}

    assert name in differing(run(**same), run("b", **{**same, **merged}))


def test_other_cards_and_their_memory_are_factors():
    state = run("b")
    device = msgspec.structs.replace(state.devices[0], name="NVIDIA H100", driver_version="999.1")
    other = msgspec.structs.replace(state, devices=(device,))

    assert differing(run(), other) == ["cards"]
    assert "known of some runs only, perhaps different: driver" in warnings(run(), other)


def test_more_than_one_difference_is_warned_of():
    one = warnings(run(), run("b", rank={"allocator": "cudaMallocAsync"}))
    two = warnings(run(), run("b", rank={"allocator": "cudaMallocAsync", "torch_version": "2.8.0"}))

    assert "factors differ" not in one
    assert "2 factors differ (PyTorch, allocator)" in two


def test_shapes_that_follow_from_another_command_are_no_second_difference():
    other = {"inputs": (InputRow("forward", "Bert", "float32[16,512]", 1),)}
    first = run(rank={"inputs": (InputRow("forward", "Bert", "float32[8,512]", 1),)})

    assert "factors differ" not in warnings(first, run("b", rank=other, command=("python", "t.py")))
    assert differing(first, run("b", rank=other)) == ["inputs (dtype and shape)"]


def test_what_follows_from_a_simulated_card_is_told_and_is_no_second_difference():
    def on(card, reserved):
        return {"simulated": card, "assumptions": (("driver-reserved", reserved), ("NCCL", "200 MiB"))}

    first = run(**on("1 × 24 GiB", "306 MiB"))
    other = run("b", command=("python", "t.py"), **on("1 × 8 GiB", "102 MiB"))

    assert differing(first, other) == ["command", "simulated", "assumed driver-reserved"]
    assert "factors differ" not in warnings(first, other)


def test_a_simulated_card_beside_a_real_one_is_a_difference_of_its_own():
    first = run(rank={"torch_version": "2.8.0"})
    other = run("b", simulated="1 × 24 GiB", assumptions=(("NCCL", "200 MiB"),))

    assert "2 factors differ (PyTorch, simulated)" in warnings(first, other)


def test_a_factor_known_of_one_run_only_is_never_taken_for_equal():
    said = warnings(run(rank={"python": "3.11.7"}), run("b"))

    assert "known of some runs only, perhaps different: Python" in said


def test_changed_files_and_unidentified_code_are_warned_of():
    dirty = run("b", told={"revision": Revision(commit=CLEAN.commit, dirty=True)})
    nowhere = {"revision": Revision(reason="no git repository")}

    assert "files differed from the commit in b" in warnings(run(), dirty)
    assert "not identified" in warnings(run(told=nowhere), run("b", told=nowhere))


@pytest.mark.parametrize(
    ("commands", "told"),
    [
        ([["t.py", "--batch", "4"], ["t.py", "--batch", "8"]], ["--batch 4 → 8"]),
        ([["t.py", "--batch=4"], ["t.py", "--batch=8", "-x"]], ["--batch 4 → 8", "-x not set → set"]),
        ([["a.py"], ["b.py"]], ["word 1 a.py → b.py"]),
        ([["a.py"], ["a.py"]], []),
        ([[], ["a"]], ["word 1 not set → a"]),
    ],
)
def test_commands_are_compared_by_their_options(commands, told):
    assert changed_words(commands) == told


def test_cold_stands_beside_cold_and_warm_beside_warm():
    cold, warm = (
        scripted.phase(0, "forward", "Bert", c, peak_allocated_bytes=n * GIB) for c, n in ((1, 3), (0, 4))
    )
    cold, warm = msgspec.structs.replace(cold, cold=True), msgspec.structs.replace(warm, cold=False)
    first = run(phases=(cold, warm))
    second = run("b", phases=(msgspec.structs.replace(warm, peak_allocated_bytes=6 * GIB), cold))

    pairs = {pair.cold: pair for pair in compare([first, second]).phases}

    assert pairs[True].difference(1, "peak_allocated_bytes") == 0
    assert pairs[False].difference(1, "peak_allocated_bytes") == 2 * GIB


def test_a_phase_of_one_run_only_stands_beside_nothing():
    comparison = compare([run(), run("b", phases=())])

    assert all(pair.runs[1] is None for pair in comparison.phases)
    assert all(pair.difference(1, "peak_allocated_bytes") is None for pair in comparison.phases)
    assert "— (not seen)" in text.render(sheet_of(comparison), cells=120)


@pytest.mark.parametrize("spoiled", [{"exact": False}, {"errors": 1}, {"peak_allocated_bytes": None}])
def test_no_difference_is_made_of_a_bound_of_a_failed_span_or_of_nothing(spoiled):
    row = scripted.phase(0, "forward", "Bert", False)

    (pair,) = compare(
        [run(phases=(row,)), run("b", phases=(msgspec.structs.replace(row, **spoiled),))]
    ).phases

    assert pair.difference(1, "peak_allocated_bytes") is None


def test_a_peak_that_an_error_cut_short_is_shown_as_a_bound():
    row = scripted.phase(0, "forward", "Bert", False, errors=1)

    said = text.render(sheet_of(compare([run(phases=(row,)), run("b", phases=(row,))])), cells=200)

    rows = [line for line in said.splitlines() if "(1 failed)" in line]
    assert [line.count("≥") for line in rows] == [2, 2, 0]  # peak allocated, peak reserved, allocated at end


def test_a_bound_spoils_peaks_but_not_levels():
    row = scripted.phase(0, "forward", "Bert", False, exact=False)
    more = msgspec.structs.replace(row, end_allocated_bytes=row.end_allocated_bytes + MIB)

    (pair,) = compare([run(phases=(row,)), run("b", phases=(more,))]).phases

    assert pair.difference(1, "end_allocated_bytes") == MIB


def test_durations_stand_beside_memory():
    row = scripted.phase(0, "backward", "", False)
    slower = msgspec.structs.replace(row, duration_ns=row.duration_ns * 3 // 2, peak_allocated_bytes=GIB)

    (pair,) = compare([run(phases=(row,)), run("b", phases=(slower,))]).phases

    assert pair.slowdown(1) == 1.5
    assert pair.difference(1, "peak_allocated_bytes") == -2 * GIB


@given(st.lists(st.integers(0, 1 << 40), min_size=2, max_size=5))
def test_differences_are_against_the_first_run_and_exact(peaks):
    states = [
        run(str(n), phases=(scripted.phase(0, "forward", "", False, peak_reserved_bytes=peak),))
        for n, peak in enumerate(peaks)
    ]

    (pair,) = compare(states).phases

    assert [pair.difference(n, "peak_reserved_bytes") for n in range(len(peaks))] == [
        p - peaks[0] for p in peaks
    ]


@pytest.mark.parametrize(
    ("capacity", "word"),
    [(8 * GIB, "excluded"), (9 * GIB, "undecided"), (10 * GIB, "undecided"), (11 * GIB, "not excluded")],
)
def test_another_card_is_a_constraint_and_no_verdict(capacity, word):
    comparison = compare([run(), run("b")], [capacity])

    assert [each.word for each in comparison.constraints] == [word, word]
    assert not any("fits" in each.because for each in comparison.constraints)


def test_what_a_failed_run_reached_does_not_say_that_a_card_is_enough():
    failed = run()
    failed = msgspec.structs.replace(
        failed, facts=msgspec.structs.replace(failed.facts, exit_code=1, ending="exit code 1")
    )

    roomy, small = (compare([run(), failed], [size]).constraints[1] for size in (11 * GIB, 8 * GIB))

    assert (roomy.word, small.word) == ("undecided", "excluded")
    assert "it failed (exit code 1)" in roomy.because


@pytest.mark.parametrize("cells", [60, 80, 120])
def test_many_runs_go_on_below_and_no_figure_is_lost(cells):
    states = [
        run(f"r{n}", phases=(scripted.phase(0, "forward", "", False, peak_allocated_bytes=(n + 1) * GIB),))
        for n in range(12)
    ]

    written = text.render(sheet_of(compare(states)), cells=cells)

    assert all(f" {n + 1}.00 GiB" in written or f" {n + 1}.0 GiB" in written for n in range(12))
    assert max(map(width, written.splitlines())) <= cells
    assert "…" not in written


def test_cards_that_are_all_alike_are_counted():
    alone = run()
    (card,) = alone.devices
    eight = msgspec.structs.replace(run("b"), devices=tuple([card] * 8))

    [cards] = [factor for factor in compare([alone, eight]).factors if factor.name == "cards"]

    assert cards.values == (card.name, f"8 × {card.name}")


def test_what_is_the_same_in_every_run_is_told_once():
    sheet = sheet_of(compare([run(), run("b"), run("c")]))

    [same] = [s for part in sheet.parts for s in part.sections if s.title == "The same"]
    assert [column.title for column in same.items[0].columns] == ["factor", "in every run"]
    assert {len(row) for row in same.items[0].rows} == {2}


def test_a_run_without_peaks_excludes_nothing():
    blank = msgspec.structs.replace(run(), ranks=())

    assert compare([blank, blank], [GIB]).constraints[0].word == "undecided"


@pytest.mark.parametrize(
    "write",
    [lambda sheet: text.render(sheet, cells=120), markdown.render, html.render],
    ids=["text", "md", "html"],
)
def test_a_comparison_says_which_runs_are_simulated_or_recorded(write):
    said = write(sheet_of(compare([run(simulated="1 × 24 GiB"), run("b", recorded=True)])))

    assert "SIMULATED 1 × 24 GiB" in said
    assert "RECORDED" in said
    assert "Different: simulated." in said.replace("\\", "")

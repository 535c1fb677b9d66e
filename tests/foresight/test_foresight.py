"""What a simulated run says of real cards: the arithmetic, the words, and the published table."""

import importlib.util
import json
import struct
from pathlib import Path

import pytest
from crossvalidation import finished, fit, leave_one_family_out, summary
from hypothesis import given
from hypothesis import strategies as st
from table import HERE, real_rows, results
from table import run as run_row

from gpumem_tui.analysis.foresight import (
    GROUPED_BYTES,
    KERNELS_BYTES,
    OUTSIDE_BYTES,
    PLANS,
    SPREADS,
    foresee,
)
from gpumem_tui.journal.simstate import read_peaks
from gpumem_tui.records.simpeak import PeakCounts
from gpumem_tui.simcard.cards import context_bytes
from gpumem_tui.views.foresight import foresight_sentences, invented_sentences

MIB, GIB = 1 << 20, 1 << 30
needs_transformers = pytest.mark.skipif(
    not importlib.util.find_spec("transformers"), reason="transformers is not installed"
)


def counts(**given) -> PeakCounts:
    figures = {
        "index": 0,
        "total_bytes": 40 * GIB,
        "driver_reserved_bytes": 512 * MIB,
        "used_bytes": 10 * GIB,
        "outside_bytes": OUTSIDE_BYTES,
        "processes": 1,
        "convolution_bytes": 0,
        "refused": 0,
        "invented_reads": 0,
    }
    return PeakCounts(**(figures | given))


SIZES = st.integers(0, 64 * GIB)


@given(used=SIZES, outside=SIZES, processes=st.integers(0, 8), convolution=SIZES)
def test_the_bound_is_the_point_and_what_it_says_it_adds(used, outside, processes, convolution):
    told = foresee(
        counts(used_bytes=used, outside_bytes=outside, processes=processes, convolution_bytes=convolution)
    )

    assert told.point_bytes == used + round(PLANS * convolution)
    assert told.bound_bytes == told.point_bytes + sum(size for _, size in told.additions)
    assert all(size > 0 for _, size in told.additions)


def test_a_process_without_cudnn_may_come_to_load_it():
    told = foresee(counts(outside_bytes=500 * MIB))

    assert dict(told.additions)["context and libraries as large as with cuDNN"] == OUTSIDE_BYTES - 500 * MIB


def test_a_card_that_refused_something_does_not_show_the_whole_need():
    told = foresee(counts(refused=2))
    (first, *_) = foresight_sentences([told])

    assert not told.fits
    assert "2 requests did not fit in 39.5 GiB: simulate a larger card" in first


def test_numbers_that_no_kernel_computed_are_told_once_for_all_devices():
    devices = [foresee(counts(invented_reads=1000, invented_counts=5)), foresee(counts(invented_reads=234))]

    (sentence,) = invented_sentences(devices)
    assert "1,234 values read back were 0 (all() true), as no kernel computed them" in sentence
    assert "; 5 of them count what boolean masks, nonzero or unique pick" in sentence
    assert "in no figure" in sentence
    assert not any("kernel computed" in each for each in foresight_sentences(devices))
    assert invented_sentences([foresee(counts())]) == []


@pytest.mark.parametrize(
    ("invented", "condition"),
    [
        ({}, ""),
        ({"invented_reads": 1}, " if no more memory hangs on a value that nothing computed here"),
        ({"invented_reads": 1000}, " if no more memory hangs on 1,000 values that nothing computed here"),
        (
            {"invented_reads": 9, "invented_counts": 1},
            " if little is picked where a mask picked nothing here",
        ),
        (
            {"invented_reads": 9, "invented_counts": 2},
            " if little is picked where 2 masks picked nothing here",
        ),
    ],
)
def test_that_it_fits_is_said_with_what_it_hangs_on_for_every_device(invented, condition):
    devices = [foresee(counts()), foresee(counts(**invented))]

    told = [each for each in foresight_sentences(devices) if each.startswith("GPU")]
    assert [each.partition("; ")[2] for each in told] == [f"fits in 39.5 GiB{condition}"] * 2


def test_what_may_not_fit_hangs_on_nothing():
    (first, *_) = foresight_sentences([foresee(counts(used_bytes=39 * GIB, invented_reads=7))])

    assert first.endswith("; may not fit in 39.5 GiB")


@pytest.mark.parametrize(
    "content", [b"", b"short", b"\0" * 4096, struct.pack("<3Q", 1, 1, 1) + b"\xff" * 4096]
)
def test_a_file_that_is_no_state_of_this_version_has_no_peaks(tmp_path: Path, content):
    file = tmp_path / "simcard.state"
    file.write_bytes(content)

    assert read_peaks(file) == ()
    assert read_peaks(tmp_path / "missing") == ()


def test_the_product_has_the_constants_that_fit_the_rows():
    fitted = fit(finished())

    assert (fitted.point.kernels_mib * MIB, fitted.point.plans) == (KERNELS_BYTES, PLANS)
    assert (fitted.spreads, fitted.grouped_mib * MIB) == (SPREADS, GROUPED_BYTES)


def test_rows_of_families_that_were_left_out_are_foreseen_and_published():
    said = leave_one_family_out(finished())
    figures = summary(said)

    assert figures["median error"] <= 0.03
    assert figures["share above the bound"] <= 0.05
    line = (
        f"| left out, with their family | {len(said)} | {figures['median error']:.1%} "
        f"| {figures['share above the bound']:.1%} | {figures['median room']:.0%} |"
    )
    assert line in (HERE / "README.md").read_text()


def test_every_row_of_the_real_card_is_in_the_results():
    assert [(row.model, row.batch, row.real_mib) for row in results()] == real_rows()


def test_a_context_of_an_architecture_not_known_is_that_of_the_nearest_older_one():
    assert context_bytes((10, 3)) == context_bytes((10, 0)) > context_bytes((9, 0))
    assert context_bytes((6, 1)) == context_bytes((7, 0))


@pytest.mark.parametrize(
    ("capability", "measured_mib"),
    [((7, 0), 320), ((8, 6), 256), ((8, 9), 426)],  # sources: gpumem_tui/simcard/cards.py
)
def test_a_context_is_within_45_mib_of_what_was_measured(capability, measured_mib):
    assert context_bytes(capability) / MIB == pytest.approx(measured_mib, abs=46)


CONVOLUTIONS = """
import torch
torch.backends.cudnn.benchmark = True
net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.Conv2d(64, 64, 3)).cuda()
y = net(torch.empty(8, 3, 256, 256, device="cuda"))
y.sum().backward()
print(y[y > 0].shape[0])
"""


@pytest.mark.slow
def test_a_simulated_run_ends_with_point_bound_and_what_was_invented(gpumem, simcard_libraries):
    script = gpumem.folder / "train.py"
    script.write_text(CONVOLUTIONS)

    done = gpumem("run", "--simulate", "8GiB", "--foresight", script)
    (device,) = json.loads(gpumem("report", "--json").stdout)["run"]["foresight"]

    assert done.stdout == b"0\n"
    assert b"GPU 0: peak device memory" in done.stderr
    assert b"safe bound" in done.stderr
    assert done.stderr.count(b"no kernel computed") == 1
    assert b"fits in 7.90 GiB if little is picked where a mask picked nothing here" in done.stderr
    assert (
        b"assumed CUDA context, 294 MiB: at a process's first use of a device of capability 8.6"
        in done.stderr
    )
    # Two outputs of the second layer's size at least, beside context and cuDNN's kernels.
    assert device["point_bytes"] > KERNELS_BYTES + 2 * 8 * 64 * 252 * 252 * 4
    largest = dict(device["additions"])[f"{SPREADS:g} × the tensors of the largest convolution"]
    assert largest > SPREADS * 8 * 64 * 252 * 252 * 4 * 2
    assert b"What a real card would need" in gpumem("report").stdout


@pytest.mark.slow
def test_without_being_asked_a_batch_run_says_nothing(gpumem, simcard_libraries):
    script = gpumem.folder / "train.py"
    script.write_text('import torch; torch.empty(1, device="cuda")')

    done = gpumem("run", "--simulate", "8GiB", script)

    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.slow
@needs_transformers
@pytest.mark.parametrize(
    ("script", "least_gib", "most_gib"),
    [
        ("mixture", 8.0, 12.0),  # 0.86 billion parameters with bf16 gradients and two moments: 6.4 GiB
        ("llama", 50.2, 56.0),  # 6.7 billion: 12.55 GiB four times
    ],
)
def test_large_models_take_a_full_step_in_seconds(gpumem, simcard_libraries, script, least_gib, most_gib):
    gpumem("run", "--simulate", "80GiB", HERE / f"{script}.py", timeout=300)

    (device,) = json.loads(gpumem("report", "--json").stdout)["run"]["foresight"]

    assert least_gib < device["point_bytes"] / GIB < most_gib
    assert device["bound_bytes"] < 80 * GIB
    assert not device["refused"]


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("timm"), reason="timm is not installed")
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")  # timm asks PyTorch for what it gives up
def test_a_row_of_the_table_comes_out_the_same_again(simcard_libraries):
    (published,) = [row for row in results() if row.model == "tnt_s_patch16_224"]

    again = run_row(published.model, published.batch, published.real_mib)

    # Other versions of timm and PyTorch keep other activations.
    assert again.told.point_bytes == pytest.approx(published.told.point_bytes, rel=0.03)
    assert again.told.bound_bytes == pytest.approx(published.told.bound_bytes, rel=0.03)

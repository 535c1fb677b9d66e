"""``measure``: the exercise under the strict protocol, its figures computed by hand, its refusals."""

import json
import sys

import pytest

from gpumem_tui.cli import main

KIB = 1 << 10
SMALL = ["--batch", "2", "--context", "4", "--width", "64", "--layers", "1", "--dtype", "float32"]


@pytest.fixture
def measure(gpumem, simcard_libraries):
    """``measure --simulate 1GiB --json``; the document."""

    def make(*options, exits=0):
        return json.loads(gpumem("measure", "--simulate", "1GiB", "--json", *options, exits=exits).stdout)

    return make


@pytest.mark.slow
@pytest.mark.simcard
def test_every_repeat_is_a_row_and_cold_is_apart_from_warm(measure, gpumem, tmp_path):
    file = tmp_path / "small.json"

    document = measure(*SMALL, "--optimizer", "adamw", "--repeats", "2", "--warmup", "1", "-o", file)

    observed = document["observed"]
    rows = [(row["phase"], row["number"], row["cold"]) for row in observed]
    load, inputs = observed[0], observed[1]
    parameters = 4 * (64 * 256 + 256 + 256 * 64 + 64)
    assert rows == [
        *[("model_load", 1, True), ("inputs", 1, True), ("cold_forward", 1, True), ("warmup", 1, False)],
        *[("warm_forward", 1, False), ("backward", 1, False), ("optimizer", 1, False)],
        *[("warm_forward", 2, False), ("backward", 2, False), ("optimizer", 2, False)],
    ]
    assert load["end_allocated_bytes"] == parameters + 256  # the short bias fills a block of 512
    assert inputs["end_allocated_bytes"] - load["end_allocated_bytes"] == 2 * 4 * 64 * 4
    assert all(row["exact"] and row["error"] is None for row in observed)
    assert all(row["peak_allocated_bytes"] <= row["peak_reserved_bytes"] for row in observed)
    assert document["simulated"] == "1 × 1 GiB"
    assert document["protocol"] == "strict"
    assert document["identity"]["protocol"] == "strict"
    assert ["batch", "2"] in document["identity"]["declared"]
    assert "repeats that are not measured: 1" in document["identity"]["warmup"]
    assert json.loads(file.read_text()) == document
    assert gpumem.report()["run"]["name"] == document["run"]


@pytest.mark.slow
@pytest.mark.simcard
def test_without_warmup_the_first_backward_is_cold(measure):
    document = measure(*SMALL, "--backward", "--repeats", "2", "--warmup", "0")

    backward = [row["cold"] for row in document["observed"] if row["phase"] == "backward"]

    assert backward == [True, False]


@pytest.mark.slow
@pytest.mark.simcard
def test_what_a_failed_measurement_reached_is_kept(measure):
    document = measure("--width", "16384", "--layers", "4", exits=1)

    assert [(row["phase"], row["error"]) for row in document["observed"]] == [
        ("model_load", "OutOfMemoryError")
    ]
    assert document["outcome"]["exit_code"] == 1


@pytest.mark.slow
@pytest.mark.simcard
def test_the_table_fits_a_terminal_and_tells_reached_from_needed(gpumem, simcard_libraries):
    words = ["measure", "--simulate", "1GiB", "--width", "16384", "--layers", "4"]
    done = gpumem(*words, exits=1, env={"COLUMNS": "80"})

    text = done.stdout.decode()
    [row] = [line for line in text.splitlines() if "model_load" in line]
    assert "SIMULATED 1 × 1 GiB" in text
    assert row.count("≥ ") == 2
    assert "OutOfMemoryError" in row
    assert "not known from it" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.simcard
def test_a_measurement_that_fails_before_any_phase_says_so(gpumem, simcard_libraries, tmp_path):
    file = tmp_path / "none.json"
    done = gpumem("measure", "--simulate", "100MiB", "-o", file, exits=1)

    assert "nothing was measured" in done.stdout.decode()
    assert json.loads(file.read_text())["observed"] == []


@pytest.mark.slow
@pytest.mark.simcard
def test_a_device_that_is_not_there_is_a_line_and_a_document(gpumem, simcard_libraries):
    done = gpumem("measure", "--simulate", "1GiB", "--device", "3", "--json", exits=2)

    assert "there is no device 3; PyTorch sees 1" in done.stderr.decode()
    assert json.loads(done.stdout)["outcome"]["exit_code"] == 2


def test_a_name_that_is_taken_is_refused_and_shows_no_other_measurement(gpumem, tmp_path):
    gpumem.run(["true"], "--name", "mine")
    file = tmp_path / "new.json"

    done = gpumem("measure", "--simulate", "1GiB", "--name", "mine", "-o", file, exits=5)

    assert "a run named mine exists" in done.stderr.decode()
    assert done.stdout == b""
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--device", "cpu"], "a CPU has no allocator figures"),
        (["--device", "x"], "--device 'x'"),
        (["--batch", "0"], "--batch 0"),
        (["--batch", "-3"], "--batch -3"),
        (["--width", "99999999999"], "out of range"),
        (["--repeats", "nan"], "--repeats"),
        (["--dtype", "int3"], "--dtype"),
        (["--simulate", "1GiB", "--name", "../x"], "cannot be used"),
        ([], "no GPU"),
    ],
)
def test_bad_input_is_one_line(gpumem, words, line):
    done = gpumem("measure", *words, exits=2)

    assert line in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1


def test_without_a_gpu_no_option_is_named_that_measure_has_not(gpumem):
    done = gpumem("measure", exits=2)

    assert done.stderr.decode().endswith("Use --simulate 24GiB for simulated cards\n")


def test_without_pytorch_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)

    assert main(["measure", "--simulate", "1GiB"]) == 2
    assert "has no PyTorch; nothing was measured" in capsys.readouterr().err


def test_a_file_is_never_overwritten_and_nothing_is_measured_for_nothing(gpumem, tmp_path):
    file = tmp_path / "taken.json"
    file.write_text("mine")

    done = gpumem("measure", "--simulate", "1GiB", "-o", file, exits=5)

    assert "not overwritten" in done.stderr.decode()
    assert file.read_text() == "mine"
    assert not list(gpumem.home.glob("runs/*"))


def test_a_folder_that_is_not_there_is_said_before_anything_runs(gpumem, tmp_path):
    done = gpumem("measure", "--simulate", "1GiB", "-o", tmp_path / "no" / "x.json", exits=6)

    assert "there is no directory" in done.stderr.decode()

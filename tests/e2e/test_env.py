"""env as users start it: with everything there, and with a full report of what is missing."""

import json
import sys

import pytest

pytestmark = [pytest.mark.slow]


@pytest.fixture
def bare_python(tmp_path):
    """An interpreter without PyTorch."""
    script = tmp_path / "bare-python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    script.chmod(0o755)
    return script


def test_without_gpu_and_pytorch_the_report_is_whole_and_the_code_is_2(gpumem, bare_python):
    done = gpumem("env", "--python", bare_python, exits=2)
    text = done.stdout.decode()

    assert done.stderr == b""
    for part in (
        "machine",
        "driver",
        "cards",
        "PyTorch",
        "variables",
        "what can be measured here",
        "missing",
    ):
        assert f"\n{part}\n" in text
    assert "no GPU: no driver" in text
    assert "no PyTorch:" in text and "ModuleNotFoundError: No module named 'torch'" in text
    assert "Traceback" not in text


def test_its_json_says_the_same_and_has_null_for_what_is_not_known(gpumem, bare_python):
    read = json.loads(gpumem("env", "--json", "--python", bare_python, exits=2).stdout)

    assert read["gpumem_tui_env"] == 1
    assert (read["complete"], len(read["missing"])) == (False, 2)
    assert read["driver"]["reason"] == "no driver"
    assert (read["driver"]["driver_version"], read["driver"]["cards"]) == (None, [])
    assert (read["torch"]["version"], read["torch"]["backend"]) == (None, None)
    assert {a["verdict"] for a in read["abilities"]} <= {"yes", "partly", "no", "not known"}


@pytest.mark.simcard(devices=["24GiB", "8GiB"])
def test_with_cards_and_pytorch_nothing_is_missing_and_no_context_is_made(gpumem, simcard):
    simcard.hold("1GiB", device=1)
    read = json.loads(gpumem("env", "--json", env=simcard.environment(visible="1")).stdout)

    assert (read["complete"], read["missing"]) == (True, [])
    assert [(c["label"], c["total_bytes"]) for c in read["driver"]["cards"]] == [
        ("0", 24 << 30),
        ("1", 8 << 30),
    ]
    assert read["driver"]["driver_version"] == "580.00.00"
    assert read["driver"]["cuda_version"] == "13.0"
    assert (read["torch"]["backend"], read["torch"]["initialized"]) == ("cuda", False)
    assert read["torch"]["allocator"] == "native"
    assert read["torch"]["devices"] == 1
    assert read["surroundings"]["variables"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert len(simcard.device(1).processes) == 1
    assert simcard.device(0).processes == ()


@pytest.mark.simcard(devices=["24GiB"], mig=2)
def test_mig_instances_and_faults_of_cards_are_told(gpumem, simcard):
    simcard.fault(nvml_telemetry_error="NOT_SUPPORTED")
    text = gpumem("env", env=simcard.environment()).stdout.decode()

    assert "GPU 0:1  Simulated card MIG 1g, 12.00 GiB" in text
    assert "MIG is on" in text
    assert "utilisation, temperature, power, clocks  no: GPU 0: not supported" in text


def test_a_python_in_the_working_directory_is_found(gpumem, bare_python):
    assert bare_python.parent == gpumem.folder
    read = json.loads(gpumem("env", "--json", "--python", f"./{bare_python.name}", exits=2).stdout)

    assert read["torch"]["python"] == str(bare_python)
    assert read["torch"]["error"].startswith("ModuleNotFoundError")


def test_a_python_that_is_not_there_is_one_line(gpumem):
    done = gpumem("env", "--python", "no-such-python", exits=2)

    assert done.stderr == b"gpumem-tui: --python no-such-python: there is no such program\n"

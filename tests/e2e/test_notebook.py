"""A notebook's kernel: cells measured as phases, in real IPython, with and without a card."""

import json
import subprocess
import sys

import pytest

from gpumem_tui.analysis.rankstate import Life

DRIVE = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config(HistoryManager={"hist_file": ":memory:"}))
for cell in json.loads(sys.argv[1]):
    with capture_output() as captured:
        result = shell.run_cell(cell, store_history=True)
    shown = [each.data for each in captured.outputs]
    value = result.result
    told = {
        "out": captured.stdout,
        "text": [data.get("text/plain", "") for data in shown],
        "html": [data.get("text/html", "") for data in shown],
        "number": result.execution_count,
        "value": value if isinstance(value, (int, float, str, list, type(None))) else repr(value),
        "rich": value._repr_html_() if hasattr(value, "_repr_html_") else None,
        "error": type(result.error_in_exec).__name__ if result.error_in_exec else None,
    }
    sys.stdout.write(json.dumps(told) + chr(10))
"""


def kernel(gpumem, cells, *how):
    """What every cell printed, displayed, returned and raised."""
    script = gpumem.folder / "kernel.py"
    script.write_text(DRIVE)
    if how:
        done = gpumem("run", "--batch", *how, "--", sys.executable, script, json.dumps(cells))
    else:
        done = subprocess.run(
            [sys.executable, str(script), json.dumps(cells)],
            cwd=gpumem.folder, env=gpumem.environment, capture_output=True, timeout=120, check=True,
        )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'{"out"')]


LOAD = "%load_ext gpumem_tui"


@pytest.mark.slow
@pytest.mark.simcard
def test_cells_are_measured_to_the_byte_and_behave_as_without_us(gpumem, simcard_libraries):
    cells = [
        LOAD,
        "%%gpumem\nimport torch; x = torch.zeros(32 << 20, device='cuda'); y = x * 2; del y",
        "%%gpumem double\ntorch.cuda.reset_peak_memory_stats()\ny = x * 2\nz = y + 1\ndel y, z\n"
        "torch.cuda.max_memory_allocated()",
        "%%gpumem\nraise KeyError('mine')",
        "%%gpumem double\nx.sum(); x.shape[0]",
        "%gpumem",
    ]

    loaded, first, double, failing, again, now = kernel(gpumem, cells, "--simulate", "8GiB")

    assert "measured into the run" in loaded["out"]
    assert "CUDA was initialised in this cell" in first["text"][0]
    assert "256 MiB" in first["text"][0]
    assert double["value"] == 3 << 27
    (text,) = double["text"]
    assert "384 MiB" in next(line for line in text.splitlines() if "double" in line and "cold" in line)
    assert "SIMULATED 1 × 8 GiB" in text
    assert "Ledger of GPU 0" in text
    assert "<table>" in double["html"][0]
    assert failing["error"] == "KeyError"
    assert "1 of 1 failed" in failing["text"][0]
    assert again["value"] == 32 << 20
    assert "allocated" in now["rich"]
    phases = {(row.phase, row.cold): row for row in gpumem.recording().read().phases}
    assert phases["double", True].peak_allocated_bytes == 3 << 27
    assert phases["double", False].count == 1


def test_a_kernel_of_its_own_gets_a_recording_that_ends_with_it(gpumem):
    loaded, measured, twice = kernel(gpumem, [LOAD, "%%gpumem\n6 * 7", "%%gpumem x\nvalue = 1\n"])

    assert "gpumem-tui attach" in loaded["out"]
    assert measured["value"] == 42
    assert "PyTorch has used no device yet" in measured["text"][0]
    assert twice["value"] is None
    facts = gpumem.recording().read().facts
    assert facts.life is Life.ENDED
    assert facts.run.split("-")[2] == "notebook"


def test_a_cell_may_hold_magics_of_its_own_and_suppress_its_value(gpumem):
    _, magic, quiet = kernel(gpumem, [LOAD, "%%gpumem\n%pwd", "%%gpumem\n5;"])

    assert magic["value"].startswith("/")
    assert "5" not in quiet["out"].replace("gpumem", "")


def test_a_cell_that_cannot_run_is_no_phase_and_says_why(gpumem):
    awaits = "%%gpumem\nimport asyncio\nawait asyncio.sleep(0)"
    inner = "%%gpumem\nasync def later():\n    await None\n3"
    _, broken, awaiting, defined = kernel(gpumem, [LOAD, "%%gpumem\nx = (", awaits, inner])

    assert broken["error"] == "SyntaxError"
    assert awaiting["error"] == "UsageError"
    assert broken["text"] == awaiting["text"] == []
    assert defined["value"] == 3


def test_a_phase_without_a_name_is_called_by_the_number_of_its_cell(gpumem):
    _, _, second = kernel(gpumem, [LOAD, "x = 1", "%%gpumem\nx"])

    assert second["number"] == 3
    assert second["text"][0].splitlines()[0].split() == ["cell", "3"]

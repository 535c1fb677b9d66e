"""A notebook's kernel: cells measured as phases, in real IPython, with and without a card."""

import json
import subprocess
import sys

import pytest

from gpumem_tui.analysis.rankstate import Life

DRIVE = """
import asyncio, json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config(HistoryManager={"hist_file": ":memory:"}))

async def main():
    for cell in json.loads(sys.argv[1]):
        with capture_output() as captured:
            code = shell.transform_cell(cell)
            if shell.should_run_async(cell, transformed_cell=code):
                result = await shell.run_cell_async(cell, store_history=True, transformed_cell=code)
            else:
                result = shell.run_cell(cell, store_history=True)
        tell(captured, result)

def run():
    for cell in json.loads(sys.argv[1]):
        with capture_output() as captured:
            result = shell.run_cell(cell, store_history=True)
        tell(captured, result)

def tell(captured, result):
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

asyncio.run(main()) if "loop" in sys.argv else run()
"""


def kernel(gpumem, cells, *how, loop=False):
    """What every cell printed, displayed, returned and raised; within a running event loop, or not."""
    words = [json.dumps(cells), *(["loop"] if loop else [])]
    script = gpumem.folder / "kernel.py"
    script.write_text(DRIVE)
    if how:
        done = gpumem("run", "--batch", *how, "--", sys.executable, script, *words)
    else:
        done = subprocess.run(
            [sys.executable, str(script), *words],
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
    inner = "%%gpumem\nasync def later():\n    await None\n3"
    _, broken, defined = kernel(gpumem, [LOAD, "%%gpumem\nx = (", inner])

    assert broken["error"] == "SyntaxError"
    assert broken["text"] == []
    assert defined["value"] == 3


AWAITING = [
    LOAD,
    "import asyncio\nasync def later(value):\n    await asyncio.sleep(0.01)\n    return value",
    "%%gpumem first\nx = await later(20)\n%pwd\nawait later(x + 1)",
    "%%gpumem\nawait later(1);",
    "%%gpumem failing\nawait later(1)\n1 / 0",
    "task = asyncio.ensure_future(later(6))",
    "%%gpumem\nawait task",
]


@pytest.mark.parametrize("running", [True, False], ids=["in the loop of a kernel", "in a terminal"])
def test_a_cell_may_await_as_in_ipython(gpumem, running):
    cells = AWAITING if running else AWAITING[:-2]
    _, _, named, quiet, failing, *others = kernel(gpumem, cells, loop=running)

    assert named["value"] == 21
    assert named["text"][0].splitlines()[0] == "first"
    assert quiet["text"][0].splitlines()[0] == "cell 4"
    assert "1" not in quiet["out"]
    assert failing["error"] == "ZeroDivisionError"
    assert failing["text"][0].splitlines()[0] == "failing"
    assert [each["value"] for each in others[1:]] == ([6] if running else [])


@pytest.mark.slow
@pytest.mark.simcard
def test_what_an_awaiting_cell_holds_is_measured_to_the_byte(gpumem, simcard_libraries):
    cell = (
        "%%gpumem awaited\nimport asyncio, torch\nx = torch.zeros(32 << 20, device='cuda')\n"
        "await asyncio.sleep(0.01)\ny = x * 2\ndel y"
    )

    kernel(gpumem, [LOAD, "import asyncio, torch; torch.zeros(1, device='cuda')", cell], "--simulate", "8GiB")

    (row,) = [row for row in gpumem.recording().read().phases if row.phase == "awaited"]
    assert row.peak_allocated_bytes - row.start_allocated_bytes == 256 << 20


def test_a_phase_without_a_name_is_called_by_the_number_of_its_cell(gpumem):
    _, _, second = kernel(gpumem, [LOAD, "x = 1", "%%gpumem\nx"])

    assert second["number"] == 3
    assert second["text"][0].splitlines()[0].split() == ["cell", "3"]

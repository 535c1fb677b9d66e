"""``explain`` on a run directory and on a memory snapshot that PyTorch has dumped, as people call it."""

import json
import pickle

import pytest

from gpumem_tui.units import GIB, MIB

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

SCRIPT = """
import json, torch, gpumem_tui
torch.cuda.memory._record_memory_history(max_entries=1000)
take = lambda size: torch.empty(size, dtype=torch.uint8, device="cuda")
blocks = [take(512 << 20) for _ in range(13)]
blocks.clear()
halves = [take(260 << 20) for _ in range(13)]
small = [torch.empty(100, device="cuda") for _ in range(10)]
with torch.cuda.stream(torch.cuda.Stream()): side = take(30 << 20)
try:
    with gpumem_tui.phase("gather"): take(2 << 30)
finally:
    torch.cuda.memory._dump_snapshot("snapshot.pickle")
    stats = torch.cuda.memory_stats()
    open("truth.json", "w").write(json.dumps({k: v for k, v in stats.items() if isinstance(v, int)}))
"""


@pytest.fixture
def failed(gpumem):
    """A run that ended by fragmented pools, and the snapshot that its script dumped."""
    (gpumem.folder / "train.py").write_text(SCRIPT)
    gpumem("run", "--simulate", "8GiB", "--batch", "--", "train.py", exits=1)
    return gpumem


def test_a_run_and_a_snapshot_are_explained_from_exact_figures(failed):
    truth = json.loads((failed.folder / "truth.json").read_text())
    path = failed.latest().path
    narrow = {"COLUMNS": "80"}
    text = failed("explain", path, env=narrow).stdout.decode()
    (failure,) = json.loads(failed("explain", path, "--json").stdout)["failures"]
    drawn = failed("explain", "snapshot.pickle", "--ascii", env=narrow).stdout.decode()
    document = json.loads(failed("explain", "snapshot.pickle", "--json").stdout)
    (device,) = document["devices"]

    assert "1 failure in run " in text
    assert "fragmentation: " in text
    assert "try    the same run with" in text
    assert max(map(len, text.splitlines() + drawn.splitlines())) <= 80
    assert failure["findings"][0]["verdict"] == "fragmentation"
    assert failure["requested_bytes"] == 2 * GIB

    pools = {(pool["pool"], pool["stream"] != 0): pool for pool in device["pools"]}
    assert pools["large", False]["largest_idle_bytes"] == 252 * MIB
    assert sum(pool["total_bytes"] for pool in device["pools"]) == truth["reserved_bytes.all.current"]
    assert sum(pool["allocated_bytes"] for pool in device["pools"]) == truth["active_bytes.all.current"]
    assert pools["large", True]["allocated_bytes"] == 30 * MIB
    assert [f["requested_bytes"] for f in document["failed"]] == [2 * GIB]
    assert "largest hole 252 MiB" in " ".join(drawn.split())
    assert "out of memory in its history: 2.00 GiB wanted" in drawn


def test_a_pickle_that_would_run_something_is_refused_in_one_line(gpumem):
    (gpumem.folder / "evil.pickle").write_bytes(pickle.dumps(print, 4))
    done = gpumem("explain", "evil.pickle", exits=4)

    assert done.stdout == b""
    assert done.stderr == b"gpumem-tui: evil.pickle: refused: it wants to load builtins.print\n"


def test_a_run_without_a_failure_says_so_by_path_and_by_name(gpumem):
    gpumem.run(["true"])
    by_path = gpumem("explain", gpumem.latest().path, exits=1)
    by_name = gpumem("explain", "latest", exits=1)

    assert by_path.stdout.startswith(b"no failures in run ")
    assert by_name.stdout == by_path.stdout


def test_a_file_comes_before_a_run_of_its_name(gpumem):
    gpumem.run(["true"], "--name", "mine")
    (gpumem.folder / "mine").write_text("step 1\n")
    done = gpumem("explain", "mine", exits=1)

    assert done.stdout.startswith(b"no out-of-memory failures in mine")

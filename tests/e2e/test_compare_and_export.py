"""Two real trainings on a simulated card: what report, compare and export say is what the script saw."""

import csv
import io
import json
import os
import signal
import sys
import urllib.error
import urllib.request

import pytest
from product import Gpumem, wait_until
from prometheus_client.parser import text_string_to_metric_families

from gpumem_tui.units import GIB

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

TRAIN = """
import json, os, sys, time, torch
from torch import nn
batch = int(sys.argv[2])
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    model(torch.randn(batch, 512, device="cuda")).sum().backward(); optimizer.step(); optimizer.zero_grad()
if "--flush" in sys.argv: torch.cuda.empty_cache()
model.eval()
with torch.no_grad(): model(torch.randn(2 * batch, 512, device="cuda"))
peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
os.write(1, (json.dumps(peaks) + chr(10)).encode())
while len(sys.argv) > 3 and sys.argv[3] != "--flush" and not os.path.exists(sys.argv[3]): time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def gpumem(tmp_path_factory, simcard_libraries):
    """A home with two runs, ``small`` and ``large``; ``peaks`` are what the scripts printed."""
    made = Gpumem(tmp_path_factory.mktemp("runs"))
    script = made.folder / "train.py"
    script.write_text(TRAIN)
    made.peaks = {}
    for name, *words in (("small", "1024"), ("large", "4096", "--flush")):
        done = made(
            "run", "--simulate", "8GiB", "--name", name, "--declare", f"batch={words[0]}",
            "--label", "study=x", "--", sys.executable, script, "--batch", *words,
        )  # fmt: skip
        made.peaks[name] = json.loads(done.stdout)
    yield made
    made.end()


def test_peaks_of_the_report_are_those_that_the_script_saw(gpumem):
    for name, (allocated, reserved) in gpumem.peaks.items():
        report = gpumem.report(name)

        (peak,) = report["ranks"][0]["peaks"]
        assert (peak["peak_allocated_bytes"], peak["peak_reserved_bytes"]) == (allocated, reserved)


def test_declared_sizes_stand_beside_what_was_really_seen(gpumem):
    report = gpumem.report("small")

    loads = {load["phase"]: load for load in report["report"]["loads"]}
    assert report["run"]["identity"]["declared"] == {"batch": "1024"}
    assert loads["forward"]["input"] == "float32[1024,512]"
    assert loads["eval"]["elements"] == 2048 * 512
    assert report["run"]["labels"] == {"study": "x"}


def test_compare_names_what_differs_and_subtracts_phase_from_phase(gpumem):
    told = json.loads(gpumem("compare", "small", "large", "--capacity", "1MiB", "--json").stdout)
    small, large = gpumem.report("small"), gpumem.report("large")

    different = {factor["name"] for factor in told["factors"] if factor["differs"]}
    assert different == {"command", "declared batch", "inputs (dtype and shape)", "empty_cache"}
    assert "--batch 1024 → 4096" in " ".join(told["warnings"])
    for pair in told["phases"]:
        mine, other = (
            next(
                row
                for row in report["phases"]
                if (row["phase"], row["name"], row["cold"]) == (pair["phase"], pair["name"], pair["cold"])
            )
            for report in (small, large)
        )
        for counter in ("peak_allocated_bytes", "peak_reserved_bytes"):
            assert pair["differences"][0][counter] == other[counter] - mine[counter]
    assert [each["word"] for each in told["constraints"]] == ["excluded", "excluded"]
    assert told["wholes"][1][0]["empty_cache"] == 1


def test_several_cards_are_given_as_estimate_takes_them(gpumem):
    told = json.loads(gpumem("compare", "small", "large", "--capacity", "1MiB,7GiB", "--json").stdout)

    words = {(each["capacity_bytes"], each["run"]): each["word"] for each in told["constraints"]}
    assert words == {
        **{(1 << 20, n): "excluded" for n in (0, 1)},
        **{(7 * GIB, n): "not excluded" for n in (0, 1)},
    }


def test_compare_as_text_says_simulated_and_warns(gpumem):
    said = gpumem("compare", "small", "large").stdout.decode()

    assert "SIMULATED 1 × 8 GiB" in said
    assert "Different: command, declared batch, inputs (dtype and shape), empty_cache." in said


def test_ndjson_has_every_span_of_the_training(gpumem):
    lines = [json.loads(line) for line in gpumem("export", "small", "--format", "ndjson").stdout.splitlines()]

    begins = [line for line in lines if line["record"] == "begin"]
    assert lines[0]["cards"] == "SIMULATED 1 × 8 GiB"
    assert [line["phase"] for line in begins].count("backward") == 4
    assert len([line for line in lines if line["record"] == "end"]) == len(begins)


def test_csv_spans_reach_the_peak_that_the_script_saw(gpumem):
    written = gpumem("export", "large", "--format", "csv", "--table", "spans").stdout.decode()
    rows = list(csv.DictReader(io.StringIO(written)))

    assert max(int(row["peak_allocated_bytes"]) for row in rows) == gpumem.peaks["large"][0]
    assert max(int(row["peak_reserved_bytes"]) for row in rows) == gpumem.peaks["large"][1]
    assert {row["exact"] for row in rows} == {"true"}


def test_a_trace_has_a_slice_for_every_span(gpumem):
    spans = gpumem("export", "small", "--format", "csv", "--table", "spans").stdout.decode()
    told = json.loads(gpumem("export", "small", "--format", "perfetto").stdout)

    slices = [event for event in told["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == len(list(csv.DictReader(io.StringIO(spans))))
    assert {event["name"].split()[0] for event in slices} >= {"forward", "backward", "optimizer", "eval"}
    assert {e["name"] for e in told["traceEvents"] if e["ph"] == "C"} >= {
        "allocated cuda:0",
        "reserved cuda:0",
    }


@pytest.fixture
def running(gpumem):
    """A run that holds its memory until the test has ended."""
    go = gpumem.folder / "go"
    go.unlink(missing_ok=True)
    script = gpumem.folder / "train.py"
    process = gpumem.start(
        "run", "--simulate", "8GiB", "--name", f"live-{os.urandom(3).hex()}", "--",
        sys.executable, script, "--batch", "1024", go,
    )  # fmt: skip
    process.stdout.readline()
    yield process
    go.touch()
    process.communicate(timeout=60)


def test_a_running_run_is_reported_and_served_as_it_stands(gpumem, running):
    name = gpumem.latest().name
    server = gpumem.start("export", name, "--format", "prometheus", "--serve", "0")
    url = server.stderr.readline().decode().split("serving ")[1].split()[0]

    def scrape():
        with urllib.request.urlopen(url, timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
        terms = {s.labels["term"]: s.value for s in samples if s.name == "gpumem_ledger_bytes"}
        return samples if {"allocated", "outside", "unattributed"} <= terms.keys() else None

    samples = wait_until(scrape, 20, "a whole ledger")
    page = gpumem("report", name, "--format", "html").stdout.decode()
    report = gpumem.report(name)
    server.send_signal(signal.SIGINT)

    values = {s.name: s.value for s in samples}
    assert url.startswith("http://127.0.0.1:")
    assert values["gpumem_run_up"] == 1
    assert values["gpumem_device_total_bytes"] == 8 * GIB
    assert sum(s.value for s in samples if s.name == "gpumem_ledger_bytes") == 8 * GIB
    assert values["gpumem_rank_allocated_bytes"] == report["ranks"][0]["levels"][0]["allocated_bytes"]
    assert "The run is going on" in page
    assert server.wait(20) == 0


def test_metrics_are_at_their_path_and_nowhere_else(gpumem):
    server = gpumem.start("export", "small", "--format", "prometheus", "--serve", "0")
    url = server.stderr.readline().decode().split("serving ")[1].split()[0]
    base = url.removesuffix("/metrics")

    def ask(path):
        try:
            with urllib.request.urlopen(base + path, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()

    asked = {
        path: ask(path) for path in ("/metrics", "/metrics?x=1", "/", "/metrics/", "/../secret", "/x%00")
    }
    server.send_signal(signal.SIGINT)

    pointer = b"gpumem-tui: metrics are at /metrics\n"
    assert asked["/metrics"][0] == asked["/metrics?x=1"][0] == 200
    assert b"gpumem_run_up" in asked["/metrics"][1]
    assert asked["/"] == (200, pointer)
    assert {asked[path] for path in ("/metrics/", "/../secret", "/x%00")} == {(404, pointer)}
    assert server.wait(20) == 0


def test_one_exporter_serves_every_run_that_goes_on_and_forgets_it_when_it_ends(gpumem, running):
    name = gpumem.latest().name
    server = gpumem.start("export", "--format", "prometheus", "--serve", "127.0.0.1:0", "--all")
    url = server.stderr.readline().decode().split("serving ")[1].split()[0]

    def runs():
        with urllib.request.urlopen(url, timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return {
                s.labels["run"]: s.value for f in families for s in f.samples if s.name == "gpumem_run_up"
            }

    going_on = runs()
    (gpumem.folder / "go").touch()
    running.wait(60)

    assert going_on == {name: 1}
    assert runs() in ({name: 0}, {})
    assert wait_until(lambda: runs() == {}, 20, "nothing to serve")
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0

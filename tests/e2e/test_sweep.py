"""``sweep`` on simulated cards: boundaries of scripts whose limit can be computed, failures kept."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pexpect
import psutil
import pytest

from tests.product import COMMAND, wait_until

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

SCRIPT = """
import sys
batch = int(sys.argv[1])
{before}
import torch
model = torch.nn.Linear(8, 8).cuda()
{body}
print("held", batch)
"""
ONE_EACH = "held = [torch.empty(256 << 20, dtype=torch.uint8, device='cuda') for _ in range(batch)]"
STEPS_OF_FOUR = ONE_EACH.replace("range(batch)", "range(4 * -(-batch // 4))")
WORST_AT_FOUR = ONE_EACH.replace("range(batch)", "range(100 if 3 <= batch <= 4 else 1)")
WORST_AT_TWO = ONE_EACH.replace("range(batch)", "range(100 if batch == 2 else batch)")
CATCHES = f"""
try:
    torch.empty(100 << 30, dtype=torch.uint8, device='cuda')
except torch.OutOfMemoryError:
    batch = 1
{ONE_EACH}
"""


@pytest.fixture
def sweep(gpumem, simcard_libraries, tmp_path):
    """``sweep --json`` of a script's body; the document."""

    def make(body, *options, before="", values="1,2", exits=0):
        script = tmp_path / "limited.py"
        script.write_text(SCRIPT.format(body=body, before=before))
        command = [sys.executable, script, "{batch}"]
        done = gpumem(
            *("sweep", "--simulate", "2GiB", "--sim-set", "context_bytes=500MiB", "--json"),
            *("--vary", f"batch={values}", *options, "--", *command),
            exits=exits, timeout=300,
        )  # fmt: skip
        return json.loads(done.stdout)

    return make


def outcomes(document, name="batch"):
    return [(int(dict(a["step"]["settings"])[name]), a["outcome"]) for a in document["attempts"]]


def test_it_finds_the_boundary_and_keeps_every_attempt(sweep, gpumem):
    # 2 GiB less 1/80 for the driver and a context of 500 MiB leave 5 × 256 MiB, and not 6
    document = sweep(ONE_EACH, "--until-oom", "--label", "who=me")

    [boundary] = document["boundaries"]
    failed = next(a for a in document["attempts"] if a["outcome"] == "out of memory")
    passed = next(a for a in document["attempts"] if a["step"]["value"] == "4")
    report = gpumem.report(failed["run"])

    assert outcomes(document) == [
        *[(1, "passed"), (2, "passed"), (4, "passed")],
        *[(8, "out of memory"), (6, "out of memory"), (5, "passed")],
        *[(12, "out of memory"), (7, "out of memory")],  # beside the boundary: is it the only one?
    ]
    assert (boundary["largest_passed"], boundary["smallest_out_of_memory"]) == (5, 6)
    assert passed["peaks"][0]["peak_allocated_bytes"] == (4 * 256 << 20) + 1024  # and the layer's two tensors
    assert report["run"]["labels"]["attempt"] == "4"
    assert report["run"]["labels"]["who"] == "me"
    assert report["run"]["identity"]["declared"] == {"batch": "8"}
    assert document["simulated"] == "2GiB"


def test_a_step_function_and_one_that_is_not_monotonic_are_told_as_they_are(sweep):
    stepped = sweep(STEPS_OF_FOUR, "--until-oom", "--name", "stepped", values="4")
    uneven = sweep(WORST_AT_TWO, "--until-oom", "--name", "uneven", values="1,2,3")

    assert stepped["boundaries"][0]["largest_passed"] == 4
    assert stepped["boundaries"][0]["smallest_out_of_memory"] == 5
    assert uneven["boundaries"][0]["verdict"] == "not monotonic"
    assert outcomes(uneven) == [(1, "passed"), (2, "out of memory"), (3, "passed")]


def test_the_search_itself_finds_that_there_is_no_one_boundary(sweep):
    hump = sweep(WORST_AT_FOUR, "--until-oom", values="1")

    assert outcomes(hump) == [
        *[(1, "passed"), (2, "passed"), (4, "out of memory"), (3, "out of memory"), (6, "passed")]
    ]
    assert hump["boundaries"][0]["verdict"] == "not monotonic"


def test_a_search_that_meets_another_failure_ends_and_says_at_which_attempt(sweep):
    broken = sweep(ONE_EACH, "--until-oom", before="assert batch < 3", values="1")

    assert outcomes(broken) == [(1, "passed"), (2, "passed"), (4, "failed")]
    assert broken["stopped"] == (
        "the search for batch ended as batch=4 failed for another reason (its output: 03.log)"
    )


def test_a_caught_failure_and_another_failure_are_told_apart_from_memory(sweep, gpumem):
    caught = sweep(CATCHES, "--name", "caught", values="3")
    ends = "raise SystemExit(3 if batch == 2 else 0)"
    broken = sweep("", "--name", "broken", before=ends, values="1,2,3")
    log = (gpumem.home / "sweeps" / "caught" / "01.log").read_text()

    assert outcomes(caught) == [(3, "passed, out of memory caught")]
    assert outcomes(broken) == [(1, "passed"), (2, "failed"), (3, "passed")]
    assert broken["attempts"][1]["exit_code"] == 3
    assert "another reason" in broken["boundaries"][0]["sentence"]
    assert log.endswith("held 1\n")


def test_ranks_of_a_launcher_are_one_attempt(gpumem, simcard_libraries, tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(
        "import os, sys, torch\n"
        "device = f\"cuda:{os.environ['LOCAL_RANK']}\"\n"
        "held = [torch.empty(256 << 20, dtype=torch.uint8, device=device) for _ in range(int(sys.argv[1]))]\n"
    )
    torchrun = Path(sys.executable).with_name("torchrun")
    words = ["--simulate", "2GiB,2GiB", "--vary", "batch=2,9", "--json"]

    done = gpumem(
        "sweep", *words, "--", torchrun, "--nproc-per-node", "2", script, "{batch}", timeout=300
    )  # fmt: skip

    document = json.loads(done.stdout)
    assert outcomes(document) == [(2, "passed"), (9, "out of memory")]
    assert [(p["rank"], p["peak_allocated_bytes"]) for p in document["attempts"][0]["peaks"]] == [
        *[(0, 512 << 20), (1, 512 << 20)]
    ]


def test_the_table_says_what_peaks_of_a_failure_are_not(gpumem, simcard_libraries, tmp_path):
    script = tmp_path / "limited.py"
    script.write_text(SCRIPT.format(body=ONE_EACH, before=""))

    done = gpumem(
        "sweep", "--simulate", "2GiB", "--vary", "batch=1,9", "--", sys.executable, script, "{batch}",
        env={"COLUMNS": "80"},
    )  # fmt: skip

    text = done.stdout.decode()
    assert "SIMULATED 2GiB" in text
    [row] = [line for line in text.splitlines() if "batch=9" in line]
    assert row.count("≥") == 3
    assert "what that value would need is not known from it" in text
    assert max(map(len, text.splitlines()[6:])) <= 80


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--", "x.py"], "nothing to vary"),
        (["--vary", "batch=1", "--", "true"], "does not use {batch}"),
        (["--vary", "batch=2,1", "--until-oom", "--", "true", "{batch}"], "rising values"),
        (["--vary", "batch=1", "--vary", "batch=2", "--", "true", "{batch}"], "varied twice"),
        (["--vary", "batch=1", "--grain", "0", "--", "true", "{batch}"], "--grain 0"),
        (["--vary", "batch=1", "--most", "9" * 20, "--", "true", "{batch}"], "take 1 to 1099511627776"),
        (["--vary", "batch=1", "--simulate", "0", "--", "true", "{batch}"], "more than nothing"),
        (["--vary", "batch=1", "--name", "../x", "--anyway", "--", "true", "{batch}"], "cannot be used"),
        (["--vary", "batch=1", "--", "true", "{batch}"], "no GPU"),
        (["--vary", "batch=1"], "nothing to run"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(gpumem, words, line):
    done = gpumem("sweep", *words, exits=2)

    assert line in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1
    assert not list(gpumem.home.glob("sweeps/*"))


WAITS = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[2])
here.touch()
while sys.argv[1] == "2":
    time.sleep(0.1)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_that_is_ended_ends_its_attempt_and_keeps_both(gpumem, tmp_path, number):
    script, words = tmp_path / "waits.py", ["--vary", "n=1,2,3", "--name", "cut"]
    script.write_text(WAITS)
    sweep = gpumem.start("sweep", "--anyway", *words, "--", sys.executable, script, "{n}", "at-{n}")
    wait_until((tmp_path / "at-2").exists)

    sweep.send_signal(number)
    out, _ = sweep.communicate(timeout=30)

    document = json.loads((gpumem.home / "sweeps" / "cut" / "sweep.json").read_text())
    assert sweep.returncode == 128 + number
    assert outcomes(document, "n") == [(1, "passed"), (2, "interrupted")]
    assert document["stopped"] == "interrupted"
    assert "Not all was tried: interrupted." in out.decode()
    assert gpumem.report("cut.02")["run"]["life"] in ("ended", "failed")
    assert not (tmp_path / "at-3").exists()


COUNTS = """
import os, pathlib, signal, sys, time
value, folder = sys.argv[1], pathlib.Path(sys.argv[2])
with open(folder / "made", "a") as file:
    file.write(value + " ")
if value == "2" and not (folder / "go").exists():
    (folder / "here").touch()
    while not (folder / "go").exists():
        time.sleep(0.05)
    sys.exit(int((folder / "go").read_text() or 0))
"""


@pytest.fixture
def counting(gpumem, tmp_path):
    """A sweep over 1, 2, 3 that waits in the attempt of 2 until told to go on."""
    (tmp_path / "counts.py").write_text(COUNTS)
    words = ["--name", "cut", "--vary", "n=1,2,3", "--", sys.executable, "counts.py", "{n}", tmp_path]
    process = gpumem.start("sweep", "--anyway", *words)
    wait_until((tmp_path / "here").exists)
    return process


def resumed(gpumem, *words):
    return json.loads(gpumem("sweep", "--resume", "cut", "--json", *words).stdout)


def test_an_interrupted_sweep_is_resumed_and_does_nothing_twice_but_what_was_interrupted(
    gpumem, tmp_path, counting
):
    counting.send_signal(signal.SIGINT)
    _, said = counting.communicate(timeout=30)
    before = json.loads((gpumem.home / "sweeps" / "cut" / "sweep.json").read_text())
    (tmp_path / "go").touch()

    document = resumed(gpumem)
    again = resumed(gpumem)
    shown = gpumem("report", "cut").stdout.decode()

    assert said.decode().endswith("go on with: gpumem-tui sweep --resume cut\n")
    assert document["attempts"][:2] == before["attempts"]
    assert outcomes(document, "n") == [(1, "passed"), (2, "interrupted"), (2, "passed"), (3, "passed")]
    assert [attempt["run"] for attempt in document["attempts"]] == [f"cut.0{n}" for n in (1, 2, 3, 4)]
    assert document["boundaries"][0]["sentence"] == "n: nothing ran out of memory up to 3"
    assert document["stopped"] is None
    assert (tmp_path / "made").read_text() == "1 2 2 3 "
    assert again["attempts"] == document["attempts"]
    assert "Resumed after attempt 2." in shown


def kill_sweep(process):
    """As where the machine is lost: only that the attempt's own processes may be left."""
    process.kill()
    process.communicate()


def test_what_a_lost_sweep_left_running_is_waited_for_and_taken_as_it_ends(gpumem, tmp_path, counting):
    kill_sweep(counting)
    told = gpumem("report", "cut").stdout.decode()
    refused = gpumem("sweep", "--resume", "cut", exits=2).stderr.decode()
    (tmp_path / "go").write_text("3")
    wait_until(lambda: gpumem.report("cut.02")["run"]["exit_code"] == 3)

    document = resumed(gpumem)

    assert "Not tried yet: n=2, n=3;" in told
    assert "attempt 2 (n=2) goes on as run cut.02" in refused
    assert outcomes(document, "n") == [(1, "passed"), (2, "failed"), (3, "passed")]
    assert document["attempts"][1]["exit_code"] == 3
    assert (tmp_path / "made").read_text() == "1 2 3 "


def test_an_attempt_that_was_lost_with_the_machine_was_interrupted_and_is_made_again(
    gpumem, tmp_path, counting
):
    kill_sweep(counting)
    lost = gpumem.latest().read_facts()
    for process in psutil.Process(lost.keeper_pid).children(recursive=True):
        process.kill()
    psutil.Process(lost.keeper_pid).kill()
    wait_until(lambda: gpumem.report("cut.02")["run"]["life"] in ("lost", "failed"))
    (tmp_path / "go").touch()

    document = resumed(gpumem)

    assert outcomes(document, "n") == [(1, "passed"), (2, "interrupted"), (2, "passed"), (3, "passed")]


def test_a_sweep_that_goes_on_is_not_resumed_beside_itself(gpumem, counting):
    refused = gpumem("sweep", "--resume", "cut", exits=5).stderr.decode()

    assert refused == "gpumem-tui: the sweep cut is going on in another process\n"


@pytest.mark.parametrize(
    ("words", "line", "code"),
    [
        (["--resume", "nothing"], "no sweep named nothing", 3),
        (["--resume", "x", "--vary", "n=1"], "leave out --vary", 2),
        (["--resume", "x", "--until-oom"], "leave out --until-oom", 2),
        (["--resume", "x", "--grain", "2"], "leave out --grain", 2),
        (["--resume", "x", "--", "true"], "leave out a command", 2),
    ],
)
def test_a_sweep_is_resumed_as_it_was_started_or_not_at_all(gpumem, words, line, code):
    refused = gpumem("sweep", *words, exits=code).stderr.decode()

    assert line in refused
    assert len(refused.splitlines()) == 1


def test_a_command_and_a_folder_whose_bytes_are_no_text_are_swept_and_resumed(gpumem, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/d\xff"))
    folder.mkdir()
    says = os.fsdecode(b"printf 'h\xc3\xa9\xff {n}'; test {n} = 1 || test -e go")
    words = ["sweep", "--anyway", "--name", "cut", "--vary", "n=1,2", "--", "sh", "-c", says]
    made = gpumem.start(*words, cwd=folder)
    made.communicate(timeout=60)
    kept = gpumem.home / "sweeps" / "cut" / "sweep.json"
    done = json.loads(kept.read_text())
    kept.write_text(json.dumps({**done, "attempts": done["attempts"][:1]}))
    shutil.rmtree(gpumem.home / "runs" / "cut.02")
    (folder / "go").touch()

    document = resumed(gpumem)

    assert made.returncode == 0
    assert outcomes(done, "n") == [(1, "passed"), (2, "failed")]
    assert outcomes(document, "n") == [(1, "passed"), (2, "passed")]
    assert (gpumem.home / "sweeps" / "cut" / "02.log").read_bytes() == b"h\xc3\xa9\xff 2"


def test_a_search_goes_on_where_it_was_interrupted(gpumem, simcard_libraries, tmp_path):
    script = tmp_path / "limited.py"
    waits = "import time, pathlib\nhere = pathlib.Path('here')\n" + (
        "while batch == 6 and not here.exists() and not pathlib.Path('at').touch(): time.sleep(0.1)"
    )
    script.write_text(SCRIPT.format(body=ONE_EACH, before=waits))
    words = ["--simulate", "2GiB", "--sim-set", "context_bytes=500MiB", "--until-oom", "--name", "cut"]
    made = gpumem.start("sweep", *words, "--vary", "batch=1,2", "--", sys.executable, script, "{batch}")
    wait_until((tmp_path / "at").exists, 60)
    made.send_signal(signal.SIGINT)
    made.communicate(timeout=30)
    (tmp_path / "here").touch()

    document = resumed(gpumem)

    assert outcomes(document) == [
        *[(1, "passed"), (2, "passed"), (4, "passed"), (8, "out of memory"), (6, "interrupted")],
        *[(6, "out of memory"), (5, "passed"), (12, "out of memory"), (7, "out of memory")],
    ]
    assert document["boundaries"][0]["sentence"] == "batch: 5 passed and 6 ran out of memory, in these runs"
    assert document["simulated"] == "2GiB"


def test_ctrl_c_in_a_terminal_reaches_the_attempt_once(gpumem, tmp_path):
    script = tmp_path / "counts.py"
    script.write_text(
        "import signal, sys, time\n"
        "def heard(*_):\n    print('heard', flush=True)\n"
        "signal.signal(signal.SIGINT, heard)\n"
        "open('ready', 'w').close()\n"
        "time.sleep(3)\n"
    )
    words = [
        "sweep",
        "--anyway",
        "--name",
        "cut",
        "--vary",
        "n=1,2",
        "--",
        sys.executable,
        str(script),
        "{n}",
    ]
    child = pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], *words], env=gpumem.environment, cwd=str(tmp_path), use_poll=True
    )
    wait_until((tmp_path / "ready").exists)

    child.sendintr()
    child.expect(pexpect.EOF, timeout=30)
    child.close()

    document = json.loads((gpumem.home / "sweeps" / "cut" / "sweep.json").read_text())
    assert (gpumem.home / "sweeps" / "cut" / "01.log").read_text() == "heard\n"
    assert child.exitstatus == 130
    assert outcomes(document, "n") == [(1, "passed")]


def test_in_a_terminal_an_attempt_is_named_while_it_runs(gpumem, tmp_path):
    script = tmp_path / "waits.py"
    script.write_text("import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n")
    words = ["sweep", "--anyway", "--vary", "n=7", "--", sys.executable, str(script), "{n}"]
    child = pexpect.spawn(
        COMMAND[0], [*COMMAND[1:], *words], env=gpumem.environment, cwd=str(tmp_path), use_poll=True
    )

    child.expect_exact("  1  n=7: running…".encode(), timeout=30)
    (tmp_path / "go").touch()
    child.expect_exact("\r  1  n=7: passed", timeout=30)
    child.expect(pexpect.EOF, timeout=30)
    child.close()

    assert child.exitstatus == 0


def test_the_search_ends_at_the_number_of_attempts_that_is_given(gpumem):
    words = ["--vary", "n=1", "--until-oom", "--each", "case=a,b", "--attempts", "5", "--json"]
    done = gpumem("sweep", "--anyway", *words, "--", "true", "{n}", "{case}")

    document = json.loads(done.stdout)
    assert outcomes(document, "n") == [*[(1, "passed")] * 2, *[(2, "passed")] * 2]
    assert document["stopped"] == "the search ended after 4 attempts (--attempts)"


def test_a_command_that_cannot_start_leaves_the_name_free(gpumem):
    words = ["sweep", "--anyway", "--name", "mine", "--vary", "n=1"]
    gpumem(*words, "--", "no-such-program", "{n}", exits=2)

    gpumem(*words, "--", "true", "{n}")

    assert (gpumem.home / "sweeps" / "mine" / "sweep.json").exists()


def test_a_recording_of_the_name_of_an_attempt_is_not_taken_for_it(gpumem):
    gpumem.run(["false"], "--name", "mine.01", exits=1)

    done = gpumem("sweep", "--anyway", "--name", "mine", "--vary", "n=1", "--", "true", "{n}", exits=5)

    assert "a run named mine.01 exists" in done.stderr.decode()
    assert not (gpumem.home / "sweeps" / "mine").exists()


def test_a_command_that_cannot_start_ends_the_sweep_with_its_reason(gpumem):
    done = gpumem("sweep", "--anyway", "--vary", "n=1,2", "--", "no-such-program", "{n}", exits=2)

    assert "attempt 1 (n=1) could not be started" in done.stderr.decode()
    assert "no-such-program" in done.stderr.decode()


def test_a_name_is_not_taken_twice(gpumem):
    words = ["sweep", "--anyway", "--name", "mine", "--vary", "n=1", "--", "true", "{n}"]
    gpumem(*words)

    done = gpumem(*words, exits=5)

    assert "exists" in done.stderr.decode()


def test_report_shows_a_sweep_again_and_hands_it_on(gpumem, tmp_path):
    words = ["sweep", "--anyway", "--name", "mine", "--vary", "n=1,2", "--"]
    shown = gpumem(*words, "true", "{n}", env={"COLUMNS": "80"}).stdout

    again = gpumem("report", "mine", env={"COLUMNS": "80"}).stdout
    kept = gpumem("report", "mine", "--json").stdout
    gpumem("report", gpumem.home / "sweeps" / "mine", "-o", tmp_path / "mine.html")
    page = (tmp_path / "mine.html").read_text()

    assert again == shown
    assert outcomes(json.loads(kept), "n") == [(1, "passed"), (2, "passed")]
    assert page.startswith("<!DOCTYPE html>")
    assert '<th scope="row">2</th><td>n=2</td><td>passed</td>' in page


def test_a_run_is_meant_before_a_sweep_of_its_name(gpumem):
    gpumem("sweep", "--anyway", "--name", "mine", "--vary", "n=1", "--", "true", "{n}")
    gpumem.run(["true"], "--name", "mine")

    assert gpumem("report", "mine").stdout.decode().startswith("mine\n")


@pytest.mark.parametrize(
    ("content", "line"), [(b"{", "damaged"), (b'{"gpumem_tui_sweep": 99', "damaged"), (None, "newer")]
)
def test_a_sweep_that_cannot_be_read_is_one_line(gpumem, content, line):
    gpumem("sweep", "--anyway", "--name", "mine", "--vary", "n=1", "--", "true", "{n}")
    file = gpumem.home / "sweeps" / "mine" / "sweep.json"
    newer = file.read_bytes().replace(b'"gpumem_tui_sweep": 1', b'"gpumem_tui_sweep": 99')
    file.write_bytes(content or newer)

    said = gpumem("report", "mine", exits=4).stderr.decode()

    assert line in said
    assert len(said.splitlines()) == 1


def test_a_sweep_is_not_redacted_and_says_so(gpumem):
    gpumem("sweep", "--anyway", "--name", "mine", "--vary", "n=1", "--", "true", "{n}")

    said = gpumem("report", "mine", "--redact", exits=2).stderr.decode()

    assert "mine is a sweep" in said

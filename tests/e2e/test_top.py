"""top as users start it: text, JSON, filters, the live view, waiting, ringing, ending a process."""

import json
import os
import shlex
import signal
import sys
import time

import pytest
from product import COMMAND, wait_until
from terminal import Terminal

pytestmark = [pytest.mark.slow, pytest.mark.simcard(devices=["24GiB", "8GiB"])]

GIB = 1 << 30


@pytest.fixture
def top(gpumem, simcard):
    """Runs ``top`` on the simulated machine."""
    env = simcard.machine.monitor_environment()

    def run(*words, **options):
        return gpumem("top", *words, env=env, **options)

    return run


@pytest.fixture
def live(gpumem, simcard):
    """Opens ``top`` on a terminal."""
    opened = []

    def start(*words, rows=24, columns=80, errors=None):
        env = {**gpumem.environment, **simcard.machine.monitor_environment()}
        command = [*COMMAND, "top", *words]
        if errors is not None:
            command = ["/bin/sh", "-c", f"exec {shlex.join(command)} 2>{shlex.quote(str(errors))}"]
        opened.append(Terminal(command, env, gpumem.folder, rows=rows, columns=columns))
        return opened[-1]

    yield start
    for each in opened:
        each.child.close(force=True)


def test_json_is_what_the_cards_hold_in_raw_bytes(simcard, top):
    holder = simcard.hold("3GiB", device=1)
    read = json.loads(top("--json").stdout)
    card = simcard.device(1)

    assert read["gpumem_tui_top"] == 1
    assert [d["total"]["bytes"] for d in read["devices"]] == [24 * GIB, 8 * GIB]
    assert read["devices"][1]["used"]["bytes"] == card.used_bytes
    assert read["devices"][1]["driver_reserved"]["bytes"] == card.reserved_bytes
    assert read["devices"][1]["unattributed"]["bytes"] == 0
    assert [(p["device"], p["pid"], p["used"]["bytes"]) for p in read["processes"]] == [
        (1, holder.pid, card.used_bytes)
    ]
    assert read["simulated"]


def test_text_is_what_a_pipe_gets_and_filters_keep_what_is_wanted(simcard, top):
    first, second = simcard.hold("1GiB", device=0, name="one"), simcard.hold("2GiB", device=1, name="two")
    whole = top().stdout.decode()
    by_device = top("--once", "--device", "1").stdout.decode()
    by_pid = json.loads(top("--json", "--pid", first.pid).stdout)
    by_user = json.loads(top("--json", "--user", "nobody-at-all").stdout)
    mine = json.loads(top("--json", "--mine", "--sort", "memory").stdout)

    assert f"{first.pid}" in whole and f"{second.pid}" in whole
    assert "SIMULATED" in whole
    assert f"{first.pid}" not in by_device and f"{second.pid}" in by_device
    assert [p["pid"] for p in by_pid["processes"]] == [first.pid]
    assert by_user["processes"] == []
    assert [p["pid"] for p in mine["processes"]] == [second.pid, first.pid]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--until", "free>>1"), "write it as 'free>20GiB on 0'"),
        (("--until", "free>1GiB on 7"), "there is no card 7; there are 0, 1"),
        (("--then", "true"), "--then needs --until"),
        (("--do", "true"), "--do needs --on-growth"),
        (("--json", "--until", "free>1GiB"), "they do not wait"),
        (("--device", "9"), "no such card; there are 0, 1"),
        (("--pid", "x"), "--pid 'x' is no number"),
        (("--on-growth", "1GB"), "ambiguous"),
        (("--interval", "0.01"), "out of range"),
    ],
)
def test_what_cannot_be_is_one_line_and_code_2(top, words, said):
    done = top(*words, exits=2)

    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""


def test_without_a_driver_it_is_one_line_that_says_where_to_look(gpumem):
    done = gpumem("top", exits=2)

    assert done.stderr == (
        b"gpumem-tui: no card: no driver: NVML Shared Library Not Found; "
        b"see gpumem-tui env; for the cards of a simulated run: top --run RUN\n"
    )


# --- waiting and ringing --------------------------------------------------------------------------


def test_until_runs_the_command_when_memory_is_free_and_its_exit_code_is_ours(gpumem, simcard):
    holder = simcard.hold("6GiB", device=1)
    waiting = gpumem.start(
        "top", "--until", "free>4GiB on 1 for 1s", "--then", 'echo "on $GPUMEM_TUI_DEVICES"; exit 7',
        "--interval", "0.5", env=simcard.machine.monitor_environment(),
    )  # fmt: skip
    assert waiting.stderr.readline() == b"waiting for free>4GiB on 1 for 1s\n"
    time.sleep(1.5)
    still = waiting.poll()
    freed = time.monotonic()
    holder.kill()
    out, err = waiting.communicate(timeout=30)

    assert still is None
    assert time.monotonic() - freed > 1
    assert waiting.returncode == 7
    assert out.decode() == f"on {simcard.device(1).uuid}\n"
    assert err == b"free>4GiB on 1 for 1s: GPU 1: free 7.90 GiB\n"


def test_until_gives_up_after_its_timeout_with_the_reading(simcard, top):
    simcard.hold("6GiB", device=1)
    simcard.fault(nvml_memory_error="NO_PERMISSION")
    done = top("--until", "free>4GiB on 1", "--timeout", "1.5", "--interval", "0.5", exits=1)

    assert b"not fulfilled: free>4GiB on 1; GPU 1: free \xe2\x80\x94 (no permission)" in done.stderr


def test_growth_of_a_neighbour_is_a_line_and_runs_the_command(gpumem, simcard, tmp_path):
    simcard.fault(context_bytes=500 << 20)
    holder = simcard.hold("1GiB", device=1, name="neighbour")
    said = tmp_path / "said"
    watching = gpumem.start(
        "top", "--on-growth", "2GiB", "--do", f'echo "$GPUMEM_TUI_ALARM" >> {said}', "--interval", "0.5",
        env=simcard.machine.monitor_environment(),
    )  # fmt: skip
    time.sleep(2.5)
    holder.stdin.write(f"{4 * GIB}\n")
    holder.stdin.flush()
    line = watching.stdout.readline().decode()
    wait_until(said.exists, 10, "the command")
    wait_until(lambda: said.read_text() == line, 10, "its word")
    watching.send_signal(signal.SIGINT)

    assert line.startswith(f"GPU 1: process {holder.pid} (")
    assert "neighbour) took 3.00 GiB within a minute; 3.41 GiB are free" in line
    assert watching.wait(10) == 130


# --- the live view --------------------------------------------------------------------------------


def test_it_is_watched_sorted_and_left_and_draws_next_to_nothing_while_nothing_happens(simcard, live):
    for number in range(3):
        simcard.hold(f"{number + 1}GiB", device=0, name=f"holder{number}")
    view = live()
    view.wait_for("3 processes by memory")
    view.press("s")
    view.wait_for("by device")
    view.press("d")
    view.wait_for("3 processes by device, GPU 0")
    view.press("d")
    shown = view.wait_for("0 processes of 3 by device, GPU 1")
    view.press("d")
    view.press("/holder2")
    found = view.wait_for("1 process of 3 by device, with “holder2”")
    view.press("\x1b")
    view.wait_for("3 processes by device ")
    view.press("\x1b[B\r")
    details = view.wait_for("host memory")
    until = time.monotonic() + 2
    while time.monotonic() < until:
        view.read()
    before = len(view.received)
    until = time.monotonic() + 4
    while time.monotonic() < until:
        view.read()
    quiet = len(view.received) - before
    view.press("q")

    assert "none" in shown
    assert "holder2" in found
    assert "holder1" not in found
    assert "command" in details
    assert quiet < 400
    assert view.wait_for_end() == 0


def test_a_process_is_ended_only_after_the_question(simcard, live):
    holder = simcard.hold("1GiB", device=0, name="victim")
    view = live()
    view.wait_for("1 process by memory")
    view.press("x")
    view.wait_for("choose a process first")
    view.press("\x1b[Bx")
    view.wait_for(f"end process {holder.pid} (")
    view.press("\x1b")
    time.sleep(0.7)
    view.read()
    spared = holder.poll()
    view.press("x")
    view.wait_for(f"end process {holder.pid} (")
    view.press("y")
    view.wait_for("SIGTERM was sent")
    view.wait_for("0 processes")

    assert spared is None
    assert holder.wait(10) == -signal.SIGTERM


def test_the_view_waits_and_rings_and_ends_with_the_command(simcard, live):
    simcard.fault(context_bytes=500 << 20)
    holder = simcard.hold("6GiB", device=1)
    view = live(
        "--until", "free>4GiB on 1", "--then", "echo begun; exit 3", "--on-growth", "1GiB", columns=120
    )
    view.wait_for("waiting: free>4GiB on 1")
    view.wait_for("GPU 1: free 1.41 GiB")
    newcomer = simcard.hold("2GiB", device=0, name="newcomer")
    newcomer.stdin.write(f"{4 * GIB}\n")
    newcomer.stdin.flush()
    view.wait_for("within a minute")
    rung = b"\x07" in view.received
    holder.kill()
    view.wait_for("begun")

    assert view.wait_for_end() == 3
    assert rung


def test_a_lost_card_is_told_on_screen_and_comes_back(simcard, live):
    simcard.hold("3GiB", device=0)
    view = live(columns=100)
    view.wait_for("1 process by memory")
    simcard.fault(nvml_error="GPU_IS_LOST", nvml_error_device=0)
    lost = view.wait_for("GPU 0: memory — lost: GPU is lost")
    row = next(line for line in lost.splitlines() if line.startswith(" 0 "))
    simcard.fault(nvml_error=0)
    back = wait_until(lambda: "— lost" not in view.read() and view.read(), 60, "the card")
    view.wait_for("can be read again")

    assert "GiB" not in row and "24.00" not in row
    assert "24.00" in back


def test_a_signal_ends_the_view_and_leaves_the_terminal_as_it_was(simcard, live):
    simcard.hold("3GiB", device=0)
    view = live()
    view.wait_for("1 process by memory")
    view.child.kill(signal.SIGTERM)
    code = view.wait_for_end()

    assert code == 128 + signal.SIGTERM
    assert b"\x1b[?1049l" in view.received
    assert view.received.count(b"\x1b[?1049h") == view.received.count(b"\x1b[?1049l")


def test_it_is_live_where_errors_go_to_a_file(simcard, live, tmp_path):
    view = live(errors=tmp_path / "errors")
    view.wait_for("0 processes by memory")
    view.press("q")

    assert view.wait_for_end() == 0
    assert (tmp_path / "errors").read_bytes() == b""


def test_ctrl_z_gives_the_shell_back_and_fg_the_view_with_its_keys(gpumem, simcard):
    env = {**gpumem.environment, **simcard.machine.monitor_environment()}
    view = Terminal(["bash", "--norc", "-i"], env, gpumem.folder)
    view.press(f"{shlex.join([*COMMAND, 'top'])}\n")
    view.wait_for("0 processes by memory")
    view.press("\x1a")
    view.wait_for("Stopped")
    view.press("fg\n")
    view.wait_for("0 processes by memory")
    view.press("?")
    view.wait_for("? closes")
    view.press("q")
    given_back = b"\x1b[?1049l"
    wait_until(lambda: view.read() and view.received.count(given_back) == 2, 20, "the shell")
    view.press("exit\n")

    assert view.wait_for_end() == 0


def test_without_colour_and_in_ascii_nothing_is_lost(simcard, live):
    simcard.hold("3GiB", device=0, name="neighbour")
    view = live("--ascii", "--theme", "mono")
    shown = view.wait_for("1 process by memory")
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        shown = view.read()

    assert "neighbour" in shown
    assert shown.isascii()
    assert b"38;2;" not in view.received and b"38;5;" not in view.received


# --- runs that gpumem-tui records -----------------------------------------------------------------

RANK = """
import os, torch, gpumem_tui, time
block = torch.empty(3 << 28, dtype=torch.uint8, device="cuda")
with gpumem_tui.phase("rollout"):
    print("up", flush=True)
    if os.environ.get("FAIL"):
        time.sleep(6)
        try:
            torch.empty(64 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            print("caught", flush=True)
    time.sleep(60)
"""


def test_a_rank_of_a_live_run_is_named_and_the_run_s_cards_are_looked_at_by_its_name(gpumem, tmp_path):
    process = gpumem.start(
        "run", "--name", "a-run", "--simulate", "8GiB", "--", sys.executable, "-c", RANK,
        env={"RANK": "0", "WORLD_SIZE": "1"},
    )  # fmt: skip
    assert process.stdout.readline() == b"up\n"
    wait_until(lambda: gpumem.recording().read().processes, 20, "the recorder")

    def look():
        read = json.loads(gpumem("top", "--run", "a-run", "--json").stdout)
        return [p for p in read["processes"] if p["run"] and p["run"]["phase"]]

    (row,) = wait_until(look, 20, "the rank in its phase")
    text = gpumem("top", "--run", "a-run", "--once", env={"COLUMNS": "140"}).stdout.decode()

    assert (row["run"]["run"], row["run"]["rank"], row["run"]["phase"]) == ("a-run", 0, "rollout")
    assert row["run"]["identified_by"] == "same pid"
    assert row["run"]["reserved_bytes"] == 3 << 28
    assert "▸ a-run rank 0 rollout" in text


def test_an_out_of_memory_error_of_a_live_run_rings(gpumem):
    process = gpumem.start(
        "run", "--name", "failing", "--simulate", "8GiB", "--", sys.executable, "-c", RANK,
        env={"RANK": "0", "WORLD_SIZE": "1", "FAIL": "1"},
    )  # fmt: skip
    assert process.stdout.readline() == b"up\n"
    watching = gpumem.start("top", "--run", "failing", "--on-oom", "--interval", "0.5")
    assert process.stdout.readline() == b"caught\n"
    line = watching.stdout.readline().decode()
    os.kill(watching.pid, signal.SIGINT)

    assert line.startswith("failing: ")
    assert "64.0 GiB" in line
    assert watching.wait(10) == 130


def test_the_view_of_a_live_run_rings_for_its_failure(gpumem, tmp_path):
    process = gpumem.start(
        "run", "--name", "watched", "--simulate", "8GiB", "--", sys.executable, "-c", RANK,
        env={"RANK": "0", "WORLD_SIZE": "1", "FAIL": "1"},
    )  # fmt: skip
    assert process.stdout.readline() == b"up\n"
    said = tmp_path / "said"
    view = Terminal(
        [*COMMAND, "attach", "watched", "--on-oom", "--do", f'echo "$GPUMEM_TUI_ALARM" >> {said}'],
        gpumem.environment,
        gpumem.folder,
    )
    view.wait_for("watched")
    assert process.stdout.readline() == b"caught\n"

    def told():
        view.read()
        return said.exists() and said.read_text()

    text = wait_until(told, 20, "the alarm")
    view.child.close(force=True)

    assert "64.0 GiB" in text
    assert text.count("\n") == 1


def test_alarms_of_a_run_need_its_live_view(gpumem):
    done = gpumem("attach", "--on-oom", exits=2)

    assert b"ring beside a live view; without one: gpumem-tui top --on-oom" in done.stderr

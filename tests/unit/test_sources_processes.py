"""Who a pid is, and that nothing of what strangers call themselves reaches a terminal as it is."""

import os
import subprocess
import sys
import time

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.sources.processes import (
    LONGEST_COMMAND_BYTES,
    command_line,
    container_of,
    describe,
    read_stat,
    sanitise,
    slurm_job,
    started_wall_ns,
)

HEX = "0123456789abcdef" * 4


@given(st.binary(max_size=20_000))
def test_no_command_line_has_a_control_character_or_more_than_4_kib(raw):
    text = command_line(raw) or ""

    assert text.isprintable()
    assert len(text.encode()) <= LONGEST_COMMAND_BYTES


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), max_size=60))
def test_ordinary_text_is_left_as_it_is(text):
    assert sanitise(text.encode(), 1000) == text


def test_an_escape_sequence_is_made_harmless():
    assert command_line(b"python\0\x1b[2J\x1b]0;title\x07\nx") == "python \ufffd[2J\ufffd]0;title\ufffd x"


def test_a_bidirectional_override_is_made_harmless():
    assert "\u202e" not in sanitise("abc\u202edef".encode())


def test_a_long_command_line_says_that_it_was_cut():
    text = command_line(b"x" * 10_000)

    assert text is not None and text.endswith("…")


def test_a_process_without_a_command_line_has_none():
    assert command_line(b"") is None


def test_this_process_is_described():
    me = describe(os.getpid())

    assert (me.visible, me.parent) == (True, os.getppid())
    assert me.command is not None and "pytest" in me.command
    assert me.started_ticks is not None and me.name and me.user


def test_a_pid_that_nobody_has_is_not_visible():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()

    assert describe(process.pid).visible is False
    assert describe(process.pid).started_ticks is None


def test_a_name_with_spaces_and_brackets_is_read_whole(tmp_path):
    program = tmp_path / "a ) R 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "30"]) as process:
        stat = read_stat(process.pid)
        process.kill()

    assert stat is not None
    assert (stat.name, stat.parent) == ("a ) R 1 (b", os.getpid())


def test_a_zombie_has_ended():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        stat = read_stat(process.pid)

    assert stat is not None and stat.has_ended


def test_the_container_is_found_in_the_cgroup_path():
    docker = f"0::/system.slice/docker-{HEX}.scope\n"
    old = f"12:memory:/docker/{HEX}\n0::/\n"
    pod = f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{HEX}.scope\n"

    assert [container_of(text) for text in (docker, old, pod)] == [HEX[:12]] * 3
    assert container_of("0::/user.slice/user-1000.slice/session-2.scope\n") is None


def test_the_slurm_job_is_found_in_the_cgroup_path_or_the_environment():
    path = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n"
    old = "4:memory:/slurm/uid_1000/job_4712/step_0\n"

    assert slurm_job(path, b"") == "4711"
    assert slurm_job(old, b"SLURM_JOB_ID=1\0") == "4712"
    assert slurm_job("0::/\n", b"A=b\0SLURM_JOB_ID=4713\0") == "4713"
    assert slurm_job("0::/home/job_7/x\n", b"SLURM_JOB_ID=\x1b[2J\0") is None


def test_the_start_of_a_process_is_told_by_the_calendar():
    before = time.time_ns()
    stat = read_stat(os.getpid())
    started = started_wall_ns(stat.started_ticks)

    assert started_wall_ns(None) is None
    assert before - 86400 * 10**9 < started <= time.time_ns() + 10**9
    assert stat.rss_bytes > 1 << 20

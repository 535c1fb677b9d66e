"""Where recordings live, and how a name becomes a directory."""

import errno
import os
import re
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.agent import wire
from gpumem_tui.errors import BadInput, CannotRecord, RecordingExists, RunNotFound, UnreadableRecording
from gpumem_tui.journal import rundir
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile, Simulated


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUMEM_TUI_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def facts(name: str = "a-run", **more) -> RunFile:
    told = {
        "run": name,
        "command": ["python", "train.py"],
        "cwd": "/",
        "host": "node",
        "user": "me",
        "boot": "b",
        "wall_ns": 5,
        "t_ns": 3,
        "version": "0.1",
        "interactive": False,
        "keeper_pid": 7,
        "keeper_ticks": 9,
    }
    return RunFile(**(told | more))


def record(name: str, wall_ns: int = 5) -> RunDirectory:
    run = rundir.create(name)
    run.write_facts(facts(name, wall_ns=wall_ns))
    return run


def test_the_variable_names_the_home():
    assert rundir.home({"GPUMEM_TUI_HOME": "/data/x", "XDG_STATE_HOME": "/s"}) == Path("/data/x")


def test_else_the_state_directory_is_the_home():
    assert rundir.home({"XDG_STATE_HOME": "/s"}) == Path("/s/gpumem-tui")


def test_a_relative_state_directory_is_ignored_as_its_specification_says():
    assert rundir.home({"XDG_STATE_HOME": "s"}) == Path.home() / ".local/state/gpumem-tui"


def test_a_run_directory_is_closed_to_others():
    run = rundir.create("a-run")

    modes = {stat.S_IMODE(path.stat().st_mode) for path in (run.path, run.journal, run.rings, run.failures)}
    assert modes == {0o700}


def test_a_name_that_is_taken_is_refused():
    rundir.create("a-run")

    with pytest.raises(RecordingExists, match="a-run"):
        rundir.create("a-run")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", ".hidden", "latest", "a\nb", "x" * 200, "ä"])
def test_a_name_that_cannot_be_a_directory_or_an_argument_is_refused(name: str):
    with pytest.raises(BadInput):
        rundir.create(name)


def test_a_home_that_is_a_link_is_refused(home: Path, tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    home.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CannotRecord, match="symbolic link"):
        rundir.create("a-run")


def test_a_home_of_another_user_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch):
    home.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 1)

    with pytest.raises(CannotRecord, match="another user"):
        rundir.create("a-run")


def test_a_home_that_is_a_file_is_refused_in_one_line(home: Path):
    home.write_text("")

    with pytest.raises(CannotRecord, match="GPUMEM_TUI_HOME"):
        rundir.create("a-run")


def test_a_full_disk_leaves_no_half_made_run(home: Path, monkeypatch: pytest.MonkeyPatch):
    mkdir = Path.mkdir

    def full(path: Path, *args, **options):
        if path.name == "failures":
            raise OSError(errno.ENOSPC, "No space left on device")
        mkdir(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", full)

    with pytest.raises(CannotRecord, match="No space left"):
        rundir.create("a-run")
    assert list((home / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        (["python", "src/train.py", "--x"], "train"),
        (["torchrun", "--nproc-per-node", "2", "fine tune.py"], "fine-tune"),
        (["python3.12", "-m", "pkg.mod", "-m", "x"], "pkg-mod"),
        (["/usr/bin/bash", "-c", "true"], "bash"),
        (["./..."], "run"),
        ([], "run"),
    ],
)
def test_a_run_is_called_after_its_script(command: list[str], stem: str):
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{stem}-[0-9a-f]{{4}}", rundir.new_name(command))


@given(st.lists(st.text()))
def test_whatever_the_command_its_name_can_be_used(command: list[str]):
    assert rundir._NAME.fullmatch(rundir.new_name(command))


def test_what_was_written_of_a_run_is_read_back():
    run = rundir.create("a-run")
    told = facts(
        simulated=Simulated(devices=[1 << 30], assumptions=[("context", "300 MiB")]), labels={"a": "b"}
    )
    run.write_facts(told)

    assert run.read_facts() == told
    assert [path.name for path in run.path.iterdir() if path.is_file()] == ["run.json"]


def test_what_was_written_of_a_run_is_never_changed():
    run = record("a-run")

    with pytest.raises(RecordingExists):
        run.write_facts(facts())


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"schema":"x"}', b'{"schema":1}', b"\xff\x00", b"[" * 9999]
)
def test_a_garbage_run_file_is_one_clear_line(text: bytes):
    run = rundir.create("a-run")
    run.run_file.write_bytes(text)

    with pytest.raises(UnreadableRecording, match=r"damaged") as caught:
        run.read_facts()
    assert "\n" not in str(caught.value)


def test_a_directory_without_a_run_file_is_no_recording(tmp_path: Path):
    with pytest.raises(UnreadableRecording, match="no recording"):
        RunDirectory(tmp_path).read_facts()


def test_a_run_of_a_newer_version_is_refused():
    run = rundir.create("a-run")
    run.run_file.write_bytes(msgspec.json.encode({"schema": wire.SCHEMA + 1, "everything": "else"}))

    with pytest.raises(UnreadableRecording, match="newer gpumem-tui"):
        run.read_facts()


def test_runs_are_listed_the_latest_first_and_garbage_with_its_problem():
    record("early", 5)
    record("late", 9)
    rundir.create("garbage").run_file.write_text("?")

    entries = {entry.run.name: entry for entry in rundir.list_runs()}
    assert [name for name in entries if name != "garbage"] == ["late", "early"]
    assert entries["garbage"].facts is None
    assert "damaged" in entries["garbage"].problem


def test_without_a_home_there_are_no_runs():
    assert rundir.list_runs() == []


def test_latest_is_the_run_that_started_last_whatever_its_name():
    record("zzz", 5)
    record("aaa", 9)
    rundir.create("garbage")

    assert rundir.find().name == "aaa"


@pytest.mark.parametrize("word", ["20260101-train-1a2b", "20260101", "./{home}/runs/20260101-train-1a2b"])
def test_a_run_is_found_by_name_start_or_path(word: str, home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(home.parent)
    record("20260101-train-1a2b")
    record("20260202-train-3c4d")

    assert rundir.find(word.format(home=home.name)).name == "20260101-train-1a2b"


def test_an_ambiguous_start_names_what_it_may_mean():
    record("train-1")
    record("train-2")

    with pytest.raises(RunNotFound, match="'train' may be train-"):
        rundir.find("train")


@pytest.mark.parametrize("word", ["trian-1a2b", "1a2b"])
def test_a_wrong_name_brings_the_closest(word: str):
    record("train-1a2b")

    with pytest.raises(RunNotFound, match="did you mean train-1a2b"):
        rundir.find(word)


def test_where_nothing_was_recorded_it_says_how_to_begin():
    with pytest.raises(RunNotFound, match="gpumem-tui run"):
        rundir.find()


def test_a_path_that_does_not_exist_is_no_run():
    with pytest.raises(RunNotFound, match="/nowhere/at/all"):
        rundir.find("/nowhere/at/all")

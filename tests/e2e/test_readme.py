"""The README is true: its commands parse and run, its files exist, its words are those of the program."""

import re
import shlex
from pathlib import Path

import pytest

import gpumem_tui
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.cli import VERBS, parser
from gpumem_tui.cli import run as run_verb
from gpumem_tui.cli import sweep as sweep_verb

ROOT = Path(gpumem_tui.__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.S)
COMMANDS = [
    line.split("#")[0].strip()
    for block in BLOCKS
    for line in block.splitlines()
    if line.startswith(("gpumem-tui ", "gpumem "))
]
SPLITS = {"run": run_verb.split, "sweep": sweep_verb.split}
"""Verbs with a command of somebody else's behind their options."""
INLINE = re.findall(r"`(gpumem-tui [^`]*)`", README)


@pytest.mark.parametrize("command", [*COMMANDS, *INLINE])
def test_every_command_is_one_that_the_program_takes(command):
    words = shlex.split(command.replace("[", "").replace("]", "").replace(",24GiB", ""))[1:]
    assert words[0] in VERBS
    if words[0] in SPLITS:
        own, rest = SPLITS[words[0]](words[1:])
        assert rest, command
        words = [words[0], *own]

    parser(words[0]).parse_args([w for w in words if w != "…" and not w.isupper()])


def test_every_verb_is_in_the_table_and_has_a_help():
    for verb in VERBS:
        assert f"| `{verb}" in README, verb
        assert "usage" in parser(verb).format_help().lower()


def test_every_file_that_it_shows_is_there():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)

    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_the_test_command_is_the_one_that_ci_runs():
    ci = (ROOT / ".ci" / "run").read_text()

    assert ".venv/bin/pip install -q -e '.[test]'" in README
    assert ".venv/bin/pip install -q -e '.[test]'" in ci
    assert ".venv/bin/python -m pytest" in README
    assert ".venv/bin/python -m pytest" in ci


def test_exit_codes_are_those_of_the_errors():
    from gpumem_tui import errors

    for code in {
        e.exit_code for e in vars(errors).values() if isinstance(e, type) and e.__module__ == errors.__name__
    }:
        assert re.search(rf"\b{code}\b", README.split("## Exit codes")[1].split("##")[0]) or code == 1


@pytest.mark.slow
@pytest.mark.simcard
def test_the_demo_trains_two_ranks_and_runs_out_of_memory_in_evaluation(gpumem, simcard_libraries):
    done = gpumem("demo", "--batch", "--steps", "5", exits=1, timeout=180)

    state = gpumem.recording().read()

    assert b"evaluating" in done.stdout
    assert b"torch.OutOfMemoryError" in done.stderr
    assert state.facts.simulated == "2 × 24 GiB"
    assert state.facts.life is Life.FAILED
    assert state.facts.moment == "at the out-of-memory error of rank 0"
    assert any("out of memory in eval" in event.text for event in state.events)
    assert [len(device.ledger.ranks) for device in state.devices] == [1, 1]


def test_the_bundled_recording_plays_where_the_demo_cannot_run(gpumem):
    shown = gpumem("demo", "--recorded").stdout.decode()

    assert "RECORDED" in shown
    assert "SIMULATED" in shown
    assert "exit code 1" in shown


def test_without_pytorch_the_demo_says_so_in_one_line_and_plays_the_recording(gpumem, monkeypatch, tmp_path):
    done = gpumem(
        "demo", "--batch", env={"SIMCARD_CC": "/nonexistent/cc", "XDG_CACHE_HOME": str(tmp_path / "c")}
    )

    assert done.stderr.count(b"\n") == 1
    assert b"playing the bundled recording instead" in done.stderr
    assert b"RECORDED" in done.stdout


def test_every_promise_names_tests_that_are_there():
    section = README.split("## What we promise")[1].split("\n## ")[0]
    named = re.findall(r"`(tests/[^`]+)`", section)

    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []

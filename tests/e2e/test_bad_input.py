"""Whatever is wrong is said in one clear line with its exit code, and nothing is lost."""

import os

import pytest
from product import COMMAND
from terminal import Terminal

CASES = [
    (["run", "train.py"], 2, "no GPU"),
    (["run", "--bogus", "train.py"], 2, "--bogus"),
    (["run"], 2, "nothing to run"),
    (["run", "--anyway", "-m"], 2, "-m needs"),
    (["run", "--anyway", "nosuch.py"], 2, "no such file"),
    (["run", "--anyway", "nosuch-command"], 127, "no such command"),
    (["run", "--anyway", "./plain.txt"], 126, "cannot be executed"),
    (["run", "--simulate", "24 GB", "true"], 2, "24GiB"),
    (["run", "--simulate", "-1", "true"], 2, "24GiB"),
    (["run", "--simulate", "0", "true"], 2, "more than nothing"),
    (["run", "--simulate", "nan", "true"], 2, "not understood"),
    (["run", "--simulate", "1e9", "true"], 2, "not understood"),
    (["run", "--simulate", "9999TiB,24GiB,", "true"], 2, "size"),
    (["run", "--kernel-us", "5", "true"], 2, "--simulate"),
    (["run", "--anyway", "--hertz", "0", "true"], 2, "0.1 to 100"),
    (["run", "--anyway", "--hertz", "x", "true"], 2, "--hertz"),
    (["run", "--anyway", "--disk-budget", "lots", "true"], 2, "--disk-budget"),
    (["run", "--anyway", "--name", "../x", "true"], 2, "run name"),
    (["run", "--anyway", "--label", "noequals", "true"], 2, "KEY=VALUE"),
    (["attach", "nosuch"], 3, "no recordings"),
    (["report", "nosuch", "--json"], 3, "no recordings"),
    (["attach", "--interval", "0"], 2, "0.5 to 60"),
    (["bogus"], 2, "invalid choice"),
    (["--bogus"], 2, "unknown option --bogus; see gpumem-tui --help"),
    (["explain", "one.log", "two.log"], 2, "one thing too many: two.log; see gpumem-tui explain --help"),
]


@pytest.mark.parametrize(("words", "code", "says"), CASES, ids=[" ".join(words) for words, _, _ in CASES])
def test_one_clear_line(gpumem, words, code, says):
    (gpumem.folder / "train.py").write_text("print(1)")
    (gpumem.folder / "plain.txt").write_text("no program")

    done = gpumem(*words, exits=code)
    lines = done.stderr.decode().splitlines()

    assert len(lines) == 1
    assert lines[0].startswith("gpumem-tui: ")
    assert says in lines[0]
    assert done.stdout == b""
    assert not list(gpumem.home.glob("runs/*"))


def test_a_taken_name_is_refused_and_the_recording_kept(gpumem):
    gpumem.run(["true"], "--name", "mine")
    before = (gpumem.latest().run_file).read_bytes()

    done = gpumem.run(["true"], "--name", "mine", exits=5)

    assert b"mine exists" in done.stderr
    assert gpumem.latest().run_file.read_bytes() == before


def test_an_unwritable_home_is_said_before_anything_is_run(gpumem):
    gpumem.home.write_text("a file")

    done = gpumem.run(["sh", "-c", "echo ran"], exits=6)

    assert done.stdout == b""
    assert b"GPUMEM_TUI_HOME" in done.stderr


def test_a_newer_recording_is_refused_in_one_line(gpumem):
    gpumem.run(["true"])
    path = gpumem.latest().run_file
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99'))

    done = gpumem("report", str(path.parent), exits=4)

    assert b"newer" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_garbage_journals_are_counted_and_the_rest_is_shown(gpumem):
    gpumem.run(["true"])
    folder = gpumem.latest().journal
    with next(folder.glob("keeper-*")).open("ab") as file:
        file.write(os.urandom(5000) + b"\n[]\n{}\n[1,2]\n")
    (folder / "rank-1-1.0000.jsonl").write_bytes(os.urandom(100_000))
    (folder / "README").write_text("not a journal")

    report = gpumem.report()

    assert report["run"]["ending"] == "exit code 0"
    assert report["health"]["corrupt_lines"] > 0


def test_a_command_with_escapes_and_line_breaks_is_one_plain_line_of_runs(gpumem):
    gpumem.run(["true", "\x1b[31mred\nsecond line"])

    listed = gpumem("runs").stdout

    assert listed.count(b"\n") == 1
    assert b"\x1b" not in listed
    assert b"red second line" in listed


def test_a_long_command_has_a_line_of_its_own_on_a_narrow_terminal_and_is_cut_there(gpumem):
    gpumem.run(["true", "train.py", "x" * 100])
    view = Terminal([*COMMAND, "runs"], gpumem.environment, gpumem.folder)
    code = view.wait_for_end()
    first, second, rest, *_ = (line.rstrip() for line in view.screen.display)

    assert code == 0
    assert first.endswith("ago")
    assert (second[:20], second[-1]) == ("    true train.py xx", "…")
    assert rest == ""


@pytest.mark.parametrize("verb", ["runs", "report"])
def test_a_stream_that_takes_only_ascii_gets_no_traceback(gpumem, verb):
    gpumem.run(["echo", "Größe ×"])

    done = gpumem(verb, env={"PYTHONIOENCODING": "ascii"})

    assert done.stderr == b""
    assert done.stdout.isascii()

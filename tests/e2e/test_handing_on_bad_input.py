"""What report, compare and export refuse: one clear line, its exit code, and nothing half-written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = [
    (["report", "nosuch"], 3, "there is no recording named"),
    (["report", "--format", "pdf"], 2, "invalid choice"),
    (["report", "--json", "--format", "html"], 2, "exclude each other"),
    (["report", "-o", "no/such/folder/x.html"], 6, "cannot write"),
    (["report", "-o", "."], 2, "is a folder"),
    (["report", "-o", "x.pdf"], 2, "nothing is written as .pdf"),
    (["compare", "a", "b", "-o", "x.csv"], 2, "nothing is written as .csv"),
    (["report", "-o", "taken.html"], 5, "is not overwritten"),
    (["report", "./taken.html"], 3, "no recording at"),
    (["report", "./" + "a" * 5000], 3, "File name too long"),
    (["report", "~no-such-user/run"], 3, "no recording at ~no-such-user/run"),
    (["compare"], 2, "two runs or more"),
    (["compare", "a"], 2, "two runs or more"),
    (["compare", "a", "a"], 2, "named twice"),
    (["compare", "a", "nosuch"], 3, "there is no recording named"),
    (["compare", *["a"] * 17], 2, "16 runs at most"),
    (["compare", "a", "b", "--capacity", "24GB"], 2, "24GiB"),
    (["compare", "a", "b", "--capacity", "24"], 2, "24 B, which no card has; write 24GiB"),
    (["compare", "a", "b", "--capacity", "0"], 2, "more than nothing"),
    (["compare", "a", "b", "--capacity", "nan"], 2, "not understood"),
    (["compare", "a", "b", "--capacity", "-1"], 2, "--capacity"),
    (["compare", "a", "b", "-o", "taken.html"], 5, "is not overwritten"),
    (["export"], 2, "--format"),
    (["export", "--format", "xml"], 2, "invalid choice"),
    (["export", "nosuch", "--format", "csv"], 3, "there is no recording named"),
    (["export", "--format", "csv", "--table", "samples"], 2, "invalid choice"),
    (["export", "--format", "ndjson", "--table", "spans"], 2, "--table belongs to"),
    (["export", "--format", "csv", "--serve"], 2, "--serve belongs to"),
    (["export", "--format", "csv", "-o", "taken.html"], 5, "is not overwritten"),
    (["export", "--format", "prometheus", "--serve", "x"], 2, "ADDRESS:PORT"),
    (["export", "--format", "prometheus", "--serve", "70000"], 2, "ADDRESS:PORT"),
    (["export", "--format", "prometheus", "--serve", "203.0.113.1:0"], 2, "cannot listen on"),
    (["export", "--format", "prometheus", "--serve", "9", "-o", "x"], 2, "exclude each other"),
    (["export", "--format", "prometheus", "--all"], 2, "--all belongs to --serve"),
    (["export", "a", "--format", "prometheus", "--serve", "0", "--all"], 2, "--all belongs to --serve"),
    (["run", "--simulate", "24", "true"], 2, "write 24GiB"),
    (["run", "--anyway", "--declare", "batch", "true"], 2, "declared size 'batch'"),
]


@pytest.fixture(scope="module")
def gpumem(tmp_path_factory):
    """A home with two runs that used no card, and a file that is in the way."""
    from product import Gpumem

    made = Gpumem(tmp_path_factory.mktemp("bad"))
    for name in ("a", "b"):
        made.run(["true"], "--name", name)
    (made.folder / "taken.html").write_text("mine")
    yield made
    made.end()


def listing(folder):
    """Everything but the recordings, which grow by themselves."""
    return sorted(str(path) for path in folder.rglob("*") if "home" not in path.relative_to(folder).parts)


@pytest.mark.parametrize(
    ("words", "code", "says"), CASES, ids=[" ".join(words)[:60] for words, _, _ in CASES]
)
def test_one_clear_line_and_nothing_left_behind(gpumem, words, code, says):
    before = listing(gpumem.folder)

    done = gpumem.told(*words)

    (line,) = done.stderr.splitlines()
    assert done.returncode == code
    assert line.startswith("gpumem-tui: ")
    assert says in line
    assert done.stdout == ""
    assert listing(gpumem.folder) == before
    assert (gpumem.folder / "taken.html").read_text() == "mine"


def test_a_dangling_link_is_not_written_through(gpumem):
    link = gpumem.folder / "link.html"
    link.symlink_to(gpumem.folder / "elsewhere")

    gpumem("report", "a", "-o", "link.html", exits=5)
    link.unlink()

    assert not (gpumem.folder / "elsewhere").exists()


def test_a_full_disk_leaves_nothing_behind(gpumem):
    before = listing(gpumem.folder)
    code = (
        "import resource, signal, sys; from gpumem_tui.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "sys.exit(main(['report', 'a', '-o', 'full.html']))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=gpumem.folder,
        env=gpumem.environment,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 6
    assert done.stderr.decode().splitlines() == ["gpumem-tui: cannot write full.html: File too large"]
    assert listing(gpumem.folder) == before


@pytest.mark.parametrize("kind", ["txt", "md", "json", "html"])
def test_a_file_is_what_its_ending_says(gpumem, kind):
    name = f"report.{kind}"
    gpumem("report", "a", "-o", name)

    written = (gpumem.folder / name).read_text()
    start = {"txt": "a\n", "md": "# a\n", "json": "{\n", "html": "<!DOCTYPE html>"}[kind]
    assert written.startswith(start)
    assert written.endswith("\n")
    (gpumem.folder / name).unlink()


@pytest.mark.parametrize("verb", [["report"], ["compare", "a", "b"], ["export", "--format", "ndjson"]])
def test_a_reader_that_goes_away_is_no_error(gpumem, verb):
    process = gpumem.start(*verb)
    process.stdout.close()

    said = process.stderr.read()

    assert process.wait(30) in (0, 141)
    assert said == b""


@pytest.mark.parametrize(
    "words",
    [
        ["export", "a", "--format", "ndjson"],
        ["runs"],
        ["estimate", "--params", "7B"],
        ["estimate", "--params", "7B", "--json"],
        ["sweep", "--anyway", "--vary", "n=1", "--json", "--", "true", "{n}"],
    ],
    ids=" ".join,
)
def test_output_to_a_device_that_takes_nothing_is_one_line(gpumem, words):
    with Path("/dev/full").open("wb") as full:
        process = gpumem.start(*words, stdout=full)
        said = process.stderr.read().decode()

    errors = [line for line in said.splitlines() if line.startswith("gpumem-tui")]
    assert process.wait(30) == 6
    assert errors == ["gpumem-tui: cannot write standard output: No space left on device"]
    assert "Traceback" not in said


def test_a_closed_standard_output_is_no_error(gpumem):
    for stream in (">&-", ">&- 2>&-"):
        command = f'"$0" -m gpumem_tui estimate --params 7B {stream}'
        done = subprocess.run(
            ["sh", "-c", command, sys.executable],
            cwd=gpumem.folder,
            env=gpumem.environment,
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_an_ending_of_another_kind_is_written_where_the_format_is_said(gpumem):
    gpumem("report", "a", "--format", "text", "-o", "report.v2")

    assert (gpumem.folder / "report.v2").read_text().startswith("a\n")
    (gpumem.folder / "report.v2").unlink()


def test_without_prometheus_client_the_line_says_what_to_install(gpumem):
    (gpumem.folder / "blocked").mkdir()
    (gpumem.folder / "blocked" / "prometheus_client.py").write_text("raise ImportError('not here')")

    done = gpumem(
        "export", "a", "--format", "prometheus", exits=2, env={"PYTHONPATH": str(gpumem.folder / "blocked")}
    )

    assert done.stderr.decode().count("\n") == 1
    assert b"pip install 'gpumem-tui[export]'" in done.stderr


def test_a_run_without_a_card_can_be_handed_on_in_every_form(gpumem):
    for words in (
        ["report"],
        ["compare", "a", "b"],
        *(["export", "--format", kind] for kind in ("ndjson", "csv", "perfetto", "prometheus")),
    ):
        assert gpumem(*words).stdout
    assert os.environ.get("GPUMEM_TUI_RUN") is None

"""What a run was: kept in run.json when it starts, and said in every output."""

import json
import subprocess
import sys

import pytest
from product import COMMAND


@pytest.fixture
def committed(gpumem):
    """A run from a repository whose file was changed after its commit; the commit."""

    def git(*words):
        settings = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", *settings, *words], cwd=gpumem.folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    script = gpumem.folder / "train.py"
    script.write_text("print(1)\n")
    git("init", "-q")
    git("add", "train.py")
    git("commit", "-q", "-m", "first")
    script.write_text("print(2)\n")
    gpumem(
        "run", "--anyway", "--label", "study=warm", "--declare", "batch=8", "--warmup", "two steps",
        "--name", "known", "train.py", "--seed", "41", env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    )  # fmt: skip
    return git("rev-parse", "HEAD")


def test_run_json_has_it(gpumem, committed):
    told = json.loads(gpumem.latest().run_file.read_text())

    assert told["revision"]["commit"] == committed
    assert told["revision"]["dirty"] is True
    assert (told["seed"], told["seed_source"]) == ("41", "command line")
    assert told["declared"] == {"batch": "8"}
    assert told["labels"] == {"study": "warm"}
    assert told["warmup"] == "two steps"
    assert told["environment"]["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"


FORMS = {
    "text": ["report"],
    "md": ["report", "--format", "md"],
    "html": ["report", "--format", "html"],
    "json": ["report", "--json"],
    "ndjson": ["export", "--format", "ndjson"],
    "csv": ["export", "--format", "csv", "--table", "identity"],
    "perfetto": ["export", "--format", "perfetto"],
    "prometheus": ["export", "--format", "prometheus"],
}


def test_every_output_says_it(gpumem, committed):
    for name, words in FORMS.items():
        said = gpumem(*words).stdout.decode()

        assert committed in said, name
        assert "41" in said, name
        assert "warm" in said, name


def test_runs_of_one_commit_with_changed_files_are_not_taken_for_equal(gpumem, committed):
    gpumem("run", "--anyway", "--name", "again", "train.py", "--seed", "42")

    told = json.loads(gpumem("compare", "known", "again", "--json").stdout)

    assert {f["name"] for f in told["factors"] if f["differs"]} >= {"command", "seed", "label study"}
    assert any("files differed from the commit in known, again" in warning for warning in told["warnings"])


def test_a_sweep_says_of_which_code_it_is(gpumem, committed):
    words = ["sweep", "--anyway", "--vary", "n=1"]
    told = json.loads(gpumem(*words, "--json", "--", "true", "{n}").stdout)
    said = gpumem(*words, "--", "true", "{n}").stdout.decode()

    assert (told["revision"]["commit"], told["revision"]["dirty"]) == (committed, True)
    assert f"Code: commit {committed[:12]} with changed files." in said


@pytest.mark.slow
def test_a_run_in_a_folder_that_was_removed_runs_and_says_so(gpumem, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    into = "import os, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
    words = [*COMMAND, "run", "--batch", "--anyway", "--", "/bin/echo", "ran"]

    done = subprocess.run(
        [sys.executable, "-c", into, folder, *words], env=gpumem.environment, capture_output=True, timeout=60
    )

    identity = gpumem.report()["run"]["identity"]
    assert (done.returncode, done.stdout) == (0, b"ran\n")
    assert identity["cwd"] == f"{folder} (deleted)"
    assert identity["revision"]["reason"] == "the working directory was removed"

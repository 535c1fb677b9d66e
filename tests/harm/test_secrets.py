"""Nothing of the environment that looks like a secret comes into a recording, or out of one."""

import re
import subprocess
import sys

import msgspec
import pytest
from product import wait_until
from tui import scripted

from gpumem_tui.analysis.comparison import compare
from gpumem_tui.analysis.redact import redacted, redacted_comparison
from gpumem_tui.analysis.state import Event, Severity
from gpumem_tui.cli.launch import KEPT_VARIABLES
from gpumem_tui.views.report import html, markdown, text
from gpumem_tui.views.report.compared import sheet_of

SECRETS = {
    "HF_TOKEN": "hf_s3cr3tAAAA",
    "WANDB_API_KEY": "s3cr3tBBBB",
    "AWS_SECRET_ACCESS_KEY": "s3cr3tCCCC",
    "AWS_SESSION_TOKEN": "s3cr3tDDDD",
    "OPENAI_API_KEY": "sk-s3cr3tEEEE",
    "GITHUB_TOKEN": "ghp_s3cr3tFFFF",
    "DATABASE_URL": "postgres://ada:s3cr3tGGGG@db/train",
    "MY_PASSWORD": "s3cr3tHHHH",
    "SSH_AUTH_SOCK": "/run/s3cr3tIIII",
    "CUDA_TOKEN": "s3cr3tJJJJ",
    "NCCL_SECRET": "s3cr3tKKKK",
    "PYTORCH_KEY": "s3cr3tLLLL",
    "GPUMEM_KEY": "s3cr3tMMMM",
    "SLURM_JWT": "s3cr3tNNNN",
}
LOOKS_SECRET = re.compile("TOKEN|KEY|SECRET|PASS|AUTH|CRED|JWT|COOKIE|URL|PROXY")

FAILS = """
import torch
a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
b = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
"""


HOLDS = """
import torch
x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
print("up", flush=True)
input()
"""


def test_no_variable_that_is_kept_is_named_like_a_secret():
    assert [name for name in KEPT_VARIABLES if LOOKS_SECRET.search(name)] == []


@pytest.mark.slow
@pytest.mark.simcard
def test_no_file_and_no_output_of_a_failed_run_holds_a_secret(gpumem, simcard_libraries):
    script = gpumem.folder / "train.py"
    script.write_text(FAILS)

    done = gpumem("run", "--simulate", "4GiB", "--", sys.executable, script, env=SECRETS, exits=None)
    told = [gpumem(*words, env=SECRETS).stdout for words in (["report"], ["report", "--json"], ["runs"])]

    assert b"OutOfMemoryError" in done.stderr
    files = [path for path in gpumem.home.rglob("*") if path.is_file()]
    assert any(path.parent.name == "failures" for path in files)
    for content in [*told, *(path.read_bytes() for path in files)]:
        assert b"s3cr3t" not in content


@pytest.mark.parametrize(
    ("user", "said", "shown"),
    [
        ("module", "the submodules of adam's module", "the submodules of adam's [user]"),
        ("root", "the root module under /root", "the root module under /root"),
        ("lovelace", "/home/lovelace/x, lovelace_run, lovelaces", "/home/[user]/x, [user]_run, lovelaces"),
        ("user", "the word user", "the word [user]"),
    ],
)
def test_a_name_is_hidden_as_a_word_of_its_own_only(user, said, shown):
    state = scripted.with_phases(facts=scripted.facts(user=user))
    told = msgspec.structs.replace(state, events=(Event(0, Severity.INFO, said),))

    assert redacted(told).events[0].text == shown


def test_a_redacted_comparison_says_what_differs_and_not_by_what():
    def run(name, key, **labels):
        facts = scripted.facts(
            run=name,
            user="lovelace",
            host="difference-engine",
            path=f"/home/lovelace/{name}",
            command=("python", "train.py", "--key", key, "--at", key),
            labels=tuple(labels.items()),
        )
        return scripted.with_phases(facts=facts)

    states = [run("before", "s3cr3t-one", owner="lovelace"), run("after", "s3cr3t-two", owner="s3cr3t-ada")]
    plain = compare(states)
    shown = redacted_comparison(states, plain)

    values = {factor.name: factor.values for factor in shown.differing}
    assert [factor.name for factor in shown.differing] == [factor.name for factor in plain.differing]
    assert values["command"] == values["label owner"] == ("[redacted] 1", "[redacted] 2")
    assert "the commands differ in more than one thing" in shown.warnings
    for kind in (text.render, markdown.render, html.render):
        written = kind(sheet_of(shown))
        assert [word for word in ("lovelace", "s3cr3t", "difference-engine") if word in written] == []


@pytest.mark.slow
def test_all_that_is_recorded_is_private_to_the_user(gpumem):
    gpumem.run(["true"])

    made = [gpumem.home, *gpumem.home.rglob("*")]

    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []


@pytest.mark.slow
@pytest.mark.simcard
def test_a_redacted_report_names_no_person_machine_folder_or_command(gpumem, simcard_libraries):
    folder = gpumem.folder / "projectx"
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(HOLDS)
    process = gpumem.start(
        *("run", "--simulate", "4GiB", "--name", "r", "--label", "owner=s3cr3t", "--"),
        *(sys.executable, script, "--api-key", "s3cr3t"),
        stdin=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"up\n"
    gpumem.hold(simcard_libraries, 0, 1 << 30, name="strangers-work")
    wait_until(lambda: any(not row.ours for row in gpumem.recording().read().processes), 60, "the stranger")
    facts = gpumem.recording().read().facts
    names = ("s3cr3t", "strangers-work", "projectx", facts.path, facts.host + '"')

    plain = gpumem("report", "--json").stdout.decode()
    shown = {
        kind: gpumem("report", "--format", kind, "--redact").stdout.decode()
        for kind in ("text", "md", "json", "html")
    }
    plain_export = gpumem("export", "--format", "ndjson").stdout.decode()
    exported = {
        words: gpumem("export", "--format", *words, "--redact").stdout.decode()
        for words in (
            *(("ndjson",), ("perfetto",), ("prometheus",)),
            *(("csv", "--table", table) for table in ("timeline", "identity")),
        )
    }
    process.communicate(b"\n", timeout=60)

    assert [name for name in names if name not in plain] == []
    assert [(kind, name) for kind, page in shown.items() for name in names if name in page] == []
    assert all(f"on {facts.host}" not in page and "redacted" in page for page in shown.values())
    assert [name for name in ("s3cr3t", "strangers-work", "projectx") if name not in plain_export] == []
    assert [(kind, name) for kind, page in exported.items() for name in names if name in page] == []
    assert exported["ndjson",].count("\n") >= plain_export.count("\n")


@pytest.mark.slow
def test_what_is_served_is_not_redacted_and_says_so(gpumem):
    refused = gpumem("export", "--format", "prometheus", "--serve", "--redact", exits=2)

    assert b"--redact is for files to hand on: leave out --serve" in refused.stderr

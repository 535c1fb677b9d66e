"""Whatever people, disks and networks hand us: one clear line, or a result, and never anything else.

``GPUMEM_TUI_FUZZ=20000`` tries so many inputs in place of the few of every run of the tests.
Journals, pickles and single messages have property tests of their own beside their code.
"""

import json
import os
import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from product import told

from gpumem_tui.errors import GpumemError
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile, read_run_file
from gpumem_tui.session import Recording

often = settings(
    max_examples=int(os.environ.get("GPUMEM_TUI_FUZZ", "60")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "23.69 GiB of which 1.02 GiB is free. Process 4711 has 22.66 GiB memory in use. Of the allocated memory "
    "20.11 GiB is allocated by PyTorch, and 1.98 GiB is reserved by PyTorch but unallocated."
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FACTS = RunFile(
    run="x", command=["python"], cwd="/", host="h", user="u", boot=None, wall_ns=1, t_ns=1, version="0",
    interactive=False, keeper_pid=1, keeper_ticks=None,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@often
@given(st.data())
def test_explain_takes_any_mutilated_log(folder: Path, data):
    text = MESSAGE.encode() * data.draw(st.integers(1, 3))
    for _ in range(data.draw(st.integers(0, 8))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.binary(max_size=30)) + text[at + data.draw(st.integers(0, 40)) :]
    log = folder / "log"
    log.write_bytes(text)

    done = told(["explain", str(log), "--json"], {}, folder)

    assert done.returncode in (0, 1), done.stderr
    json.loads(done.stdout)


@often
@given(st.binary(max_size=2000))
def test_explain_takes_any_bytes(folder: Path, data: bytes):
    log = folder / "log"
    log.write_bytes(data)

    done = told(["explain", str(log)], {}, folder)

    assert done.returncode in (0, 1, 4)
    assert "\x1b" not in done.stdout


@often
@given(st.dictionaries(st.sampled_from([f.name for f in msgspec.structs.fields(RunFile)]), JSON))
def test_a_run_file_with_any_values_is_read_or_refused_in_one_line(folder: Path, values):
    path = folder / "run.json"
    path.write_text(json.dumps(msgspec.to_builtins(FACTS) | values))

    try:
        facts = read_run_file(path)
    except GpumemError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(facts, RunFile)


@often
@given(st.lists(JSON | st.text(max_size=30), max_size=8), st.binary(max_size=60))
def test_a_run_with_any_lines_in_its_journals_opens(tmp_path_factory, lines, tail):
    run = RunDirectory(tmp_path_factory.mktemp("run"))
    run.journal.mkdir()
    run.write_facts(FACTS)
    for stem in ("rank-7-1", "driver-8-1", "keeper-9-1"):
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        (run.journal / f"{stem}.0000.jsonl").write_bytes(text + tail)

    state = Recording(run).read()

    assert state.facts.run == "x"


@often
@given(JSON, st.binary(max_size=100))
def test_a_safetensors_file_with_any_header_is_read_or_refused(folder: Path, header, tail):
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + tail)

    done = told(["estimate", str(path)], {}, folder)

    assert done.returncode in (0, 2, 4)
    assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr


OPTIONS = "--json --once --format html -o --params 7B --bits 4 --device 24GiB --help --kv-heads 0 -1 nan"
WORDS = st.sampled_from(
    [*OPTIONS.split(), "1e999", "--tokens", "--train", "\x1b[2J", "é", "--", "-", "latest", ""]
)


@often
@given(
    st.sampled_from(["estimate", "report", "runs", "explain", "replay", "compare", "nothing"]),
    st.lists(WORDS),
)
def test_any_words_end_with_a_documented_code_and_no_traceback(folder: Path, verb, words):
    done = told([verb, *words], {"GPUMEM_TUI_HOME": str(folder / "home")}, folder)

    assert done.returncode in (0, 1, 2, 3, 4, 5)
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr

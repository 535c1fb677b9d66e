"""``explain`` as people call it: on a file or a pipe, as text or JSON, with its exit codes."""
# ruff: noqa: E501  lines of logs are easier to compare whole

import json
import os

import pytest

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.12 GiB. GPU 1 has a total capacity of 31.73 GiB"
    " of which 1.04 GiB is free. Process 8080 has 17.20 GiB memory in use. Including non-PyTorch memory, this process"
    " has 13.48 GiB memory in use. Of the allocated memory 12.66 GiB is allocated by PyTorch, and 298.41 MiB is"
    " reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
LOG = f"""\
step 1 of 9
[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/fit.py", line 31, in main
[rank2]:     evaluate(model, loader)
[rank2]:   File "/home/me/fit.py", line 12, in evaluate
[rank2]:     logits.append(model(x))
[rank2]: {FULL}
[rank0]: RuntimeError: Connection closed by peer
"""

KEYS = ("schema", "source", "lines", "bytes", "failures", "failures_not_kept", "pressure", "aftermath")


@pytest.fixture
def log(gpumem):
    """A log of one failure and one victim."""
    path = gpumem.folder / "train.log"
    path.write_text(LOG)
    return path


def test_a_failure_is_found_and_said_with_its_figures(gpumem, log):
    text = gpumem("explain", log.name).stdout.decode()

    assert text.startswith("1 out-of-memory failure in ")
    for words in (
        "rank 2",
        "GPU 1",
        "in eval",
        "fit.py:12 in evaluate",
        "3.12 GiB",
        "process 8080",
        "other process",
    ):
        assert words in text
    assert "line 8: rank 0: Connection closed by peer" in text


def test_the_text_fits_eighty_columns_and_ascii_where_asked(gpumem, log):
    text = gpumem("explain", log.name, "--ascii", env={"COLUMNS": "80"}).stdout

    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80


def test_the_json_has_the_documented_keys_and_raw_bytes_with_bounds(gpumem, log):
    document = json.loads(gpumem("explain", log.name, "--json").stdout)
    (failure,) = document["failures"]

    assert tuple(document)[: len(KEYS)] == KEYS
    assert document["schema"] == 1
    assert document["lines"] == 8
    assert failure["requested"] == {
        "printed": "3.12 GiB",
        "bytes": 3350074491,
        "low_bytes": 3344705782,
        "high_bytes": 3355443200,
        "reason": None,
    }
    assert failure["private_pools"] is None
    assert failure["findings"][0]["verdict"] == "other process"
    assert document["aftermath"][0]["rank"] == 0


def test_a_pipe_is_read_for_a_dash(gpumem):
    text = gpumem("explain", "-", stdin=FULL.encode()).stdout.decode()

    assert "1 out-of-memory failure in standard input" in text


def test_a_log_of_windows_is_read(gpumem, log):
    log.write_bytes(LOG.replace("\n", "\r\n").encode("utf-16"))

    document = json.loads(gpumem("explain", log.name, "--json").stdout)

    assert [failure["rank"] for failure in document["failures"]] == [2]


@pytest.mark.parametrize(
    "content", [b"", b"step 1\nstep 2\n", os.urandom(300_000)], ids=["empty", "quiet", "garbage"]
)
def test_none_found_is_exit_code_1(gpumem, log, content):
    log.write_bytes(content)

    done = gpumem("explain", log.name, exits=1)

    assert done.stdout.startswith(b"no out-of-memory failures in ")
    assert done.stderr == b""


def test_pressure_alone_is_told_and_is_no_failure(gpumem, log):
    log.write_text(
        "[W1129 15:40:41.2 CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device 0 while trying"
        " to allocate 2147483648 bytes (free: 1073741824, total: 25383272448).\n"
    )
    done = gpumem("explain", log.name, exits=1)

    assert b"pressure (supported): 1 driver allocation failed" in done.stdout


@pytest.mark.parametrize("name", ["nosuch.log", "."])
def test_what_cannot_be_read_is_exit_code_4_and_one_line(gpumem, name):
    done = gpumem("explain", name, exits=4)

    assert done.stdout == b""
    assert done.stderr.decode().splitlines() == [done.stderr.decode().rstrip("\n")]
    assert name.encode() in done.stderr


def test_control_characters_of_a_log_are_never_printed(gpumem, log):
    log.write_bytes(
        b"\x1b]0;owned\x07\x1b[31m" + LOG.replace("fit.py", "f\x1bit\x07.py").encode() + b"\x9b31m\x1b[?1049h"
    )

    out = gpumem("explain", log.name).stdout.decode()
    raw = gpumem("explain", log.name, "--json").stdout

    assert all(char.isprintable() or char == "\n" for char in out)
    assert b"\x1b" not in raw
    assert b"u001b" not in raw


def test_help_documents_the_exit_codes(gpumem):
    text = gpumem("explain", "--help").stdout.decode()

    assert "exit codes: 0 a failure was found; 1 none was found" in text


def test_many_failures_are_cut_and_all_of_them_given_where_asked(gpumem, log):
    log.write_text("".join(f"[rank{n}]: {FULL}\n" for n in range(14)))

    short = gpumem("explain", log.name).stdout.decode()
    whole = gpumem("explain", log.name, "--all").stdout.decode()

    assert "and 4 more" in short
    assert "rank 13" not in short
    assert "rank 13" in whole


OWN_PROGRAM = """
import json, torch
torch.cuda.set_per_process_memory_fraction({fraction})
held = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(5)]
del held[1]
try:
    torch.empty(9 << 30, dtype=torch.uint8, device="cuda")
finally:
    print(json.dumps([torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]]))
"""


@pytest.mark.slow
@pytest.mark.simcard(devices=["8GiB"])
@pytest.mark.parametrize(("fraction", "verdict"), [(1.0, "capacity"), (0.75, "per-process cap")])
def test_what_pytorch_really_prints_is_read_with_its_own_figures(gpumem, simcard, fraction, verdict):
    done = simcard.python(OWN_PROGRAM.format(fraction=fraction), exits=1)
    allocated, reserved, free = json.loads(done.stdout)

    document = json.loads(gpumem("explain", "-", "--json", stdin=done.stderr.encode()).stdout)
    (failure,) = document["failures"]

    assert failure["requested"]["low_bytes"] <= 9 << 30 <= failure["requested"]["high_bytes"]
    assert failure["allocated"]["low_bytes"] <= allocated <= failure["allocated"]["high_bytes"]
    assert failure["idle"]["low_bytes"] <= reserved - allocated <= failure["idle"]["high_bytes"]
    assert failure["free"]["low_bytes"] <= free <= failure["free"]["high_bytes"]
    assert failure["findings"][0]["verdict"] == verdict
    assert document["pressure"] == []

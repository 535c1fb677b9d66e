"""Exceptions that nobody caught: printed as without us, whatever hooks there are, and told to the journal."""

import re
import sys
import textwrap

import pytest

from gpumem_tui import records
from gpumem_tui.agent.endings import kind_of, text_of
from gpumem_tui.journal.failurefile import read_failure

START = """
import sys, threading, torch, torch.nn as nn
x = torch.empty(4 << 20, device="cuda")
class Greedy(nn.Module):
    def __init__(self): super().__init__(); self.inner = nn.Linear(8, 8)
    def forward(self, x):
        self.inner(x)
        return torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
greedy = Greedy().cuda()
def fail(): greedy(torch.randn(2, 8, device="cuda"))
"""

PROGRAMS = {
    "out of memory": """
fail()
""",
    "chained": """
try: fail()
except torch.OutOfMemoryError as error: raise RuntimeError("no size fits") from error
""",
    "looked at": """
try: fail()
except RuntimeError as error:
    print(type(error), error.args, error.__context__, error.__cause__, vars(error))
    print(error.__traceback__.tb_next.tb_frame.f_code.co_name, sys.exc_info()[1] is error)
""",
    "in a thread": """
thread = threading.Thread(target=fail, name="worker"); thread.start(); thread.join(); print("goes on")
""",
    "in backward": """
class Backward(torch.autograd.Function):
    @staticmethod
    def forward(context, x): return x * 2
    @staticmethod
    def backward(context, grad): return torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
Backward.apply(nn.Linear(8, 8).cuda()(torch.randn(2, 8, device="cuda"))).sum().backward()
""",
    "no memory at all": """
class Own(Exception):
    def __str__(self): print("__str__"); return "mine"
raise Own(7)
""",
    "the user's hook": """
sys.excepthook = lambda kind, value, trace: print("mine", kind.__name__, value)
raise KeyError(1)
""",
    "a chained hook": """
before = sys.excepthook
def mine(*args): print("mine"); before(*args)
sys.excepthook = mine
fail()
""",
}


def normal(text):
    """Without what differs from run to run: warnings' times, process numbers, addresses."""
    text = re.sub(r"\[W[^\]]*\]", "[W]", text)
    return re.sub(r"free: \d+|0x[0-9a-f]+|Process-\d+", "", text)


def both(make_simcard, agent_run, script):
    """Exit code and streams of a script without us and with us, each on a card of its own, at once."""
    started = [make_simcard().start_python(script, env=env) for env in ({}, agent_run.environment())]
    ended = [process.communicate(timeout=120) for process in started]
    return [
        (process.returncode, normal(out), normal(err))
        for process, (out, err) in zip(started, ended, strict=True)
    ]


@pytest.mark.slow
@pytest.mark.simcard
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_printed_and_how_it_ends_is_as_without_us(make_simcard, agent_run, name, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(START + PROGRAMS[name] + "\n")
    bare, monitored = both(make_simcard, agent_run, script)

    assert monitored == bare
    told = {
        "out of memory": [("out of memory", "OutOfMemoryError", None)],
        "chained": [("exception", "RuntimeError", None)],
        "looked at": [],
        "in a thread": [("out of memory", "OutOfMemoryError", "worker")],
        "in backward": [("out of memory", "OutOfMemoryError", None)],
        "no memory at all": [("exception", "Own", None)],
        "the user's hook": [("exception", "KeyError", None)],
        "a chained hook": [("out of memory", "OutOfMemoryError", None)],
    }[name]
    lines = agent_run.records(records.UncaughtException)
    assert [(line.kind, line.error, line.thread) for line in lines] == told


@pytest.mark.slow
@pytest.mark.simcard
def test_an_uncaught_failing_allocation_has_one_record_and_its_phase(simcard, agent_run):
    simcard.python(START + PROGRAMS["chained"], env=agent_run.environment(), exits=1)
    (line,) = agent_run.records(records.UncaughtException)
    (failure,) = agent_run.records(records.Failure)

    assert (line.phase, line.text, line.path) == ("forward", "no size fits", failure.path)
    assert len(list((agent_run.path / "failures").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.simcard
def test_failures_of_several_threads_at_once_each_have_their_own_record(simcard, agent_run):
    simcard.python(
        START + textwrap.dedent("""
        together = threading.Barrier(3)
        def take(size): return torch.empty(size, dtype=torch.uint8, device="cuda")
        def work(size): together.wait(); take(size)
        def caught():
            try: take(7 << 40)
            except torch.OutOfMemoryError: pass
        threads = [threading.Thread(target=work, args=(n << 40,), name=str(n)) for n in (1, 2, 3)]
        for each in threads: each.start()
        for each in threads: each.join()
        try: take(4 << 40)
        finally:
            last = threading.Thread(target=caught); last.start(); last.join()
        """),
        env=agent_run.environment(),
        exits=1,
    )  # fmt: skip
    wanted = {line.path: line.requested_bytes >> 40 for line in agent_run.records(records.Failure)}
    told = {line.thread: wanted[line.path] for line in agent_run.records(records.UncaughtException)}

    assert told == {"1": 1, "2": 2, "3": 3, None: 4}


@pytest.mark.slow
@pytest.mark.simcard
def test_an_exception_of_the_program_leaves_essentials_and_says_why_there_is_no_more(simcard, agent_run):
    simcard.python(START + PROGRAMS["no memory at all"], env=agent_run.environment(), exits=1)
    (line,) = agent_run.records(records.UncaughtException)
    record = read_failure(agent_run.path / line.path)

    assert (record.kind, record.error, line.text) == ("exception", "Own", "")
    assert record.counters["allocated_bytes.all.current"] > 16 << 20
    assert record.missing["pools"] == "left out: not a failure of memory"
    assert record.stack[-1].endswith("<module>")


@pytest.mark.slow
@pytest.mark.simcard
@pytest.mark.parametrize("how", ["multiprocessing", "a run of its own", "torch.multiprocessing"])
def test_a_child_process_that_fails_tells_it_itself(make_simcard, agent_run, tmp_path, how):
    script = tmp_path / "children.py"
    started = (
        "p = mp.get_context('spawn').Process(target=child, args=(0,)); p.start(); p.join(); print(p.exitcode)"
        if how == "multiprocessing"
        else "p = Own(); p.start(); p.join(); print(p.exitcode)"
        if how == "a run of its own"
        else "try: torch.multiprocessing.spawn(child, nprocs=1)\n"
        "    except Exception as error: print(type(error).__name__)"
    )
    script.write_text(
        "import torch, multiprocessing as mp\n"
        "def child(rank):\n    x = torch.empty(8, device='cuda'); raise ValueError('child failed')\n"
        "class Own(mp.get_context('spawn').Process):\n    def run(self): child(0)\n"
        f"if __name__ == '__main__':\n    {started}\n"
    )
    bare, monitored = both(make_simcard, agent_run, script)
    (line,) = agent_run.records(records.UncaughtException)

    assert (line.error, line.text) == ("ValueError", "child failed")
    assert monitored == bare


@pytest.mark.slow
@pytest.mark.simcard
def test_an_exception_after_which_people_go_on_at_a_prompt_ends_nothing(simcard, agent_run, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(START + "fail()\n")
    process = simcard.start([sys.executable, "-i", script], env=agent_run.environment())
    out, err = process.communicate("fail()\nprint('goes on')\n", timeout=120)

    assert err.count("OutOfMemoryError") == 2
    assert out == "goes on\n"
    assert len(agent_run.records(records.Failure)) == 2
    assert agent_run.records(records.UncaughtException) == []


@pytest.mark.slow
@pytest.mark.simcard(devices=["4GiB"])
def test_allocations_that_only_a_flush_made_possible_are_told_as_pressure(simcard, agent_run):
    done = simcard.python(
        """
        import time, torch
        for size in (1 << 30, 2 << 30, 1 << 30, 3 << 30):
            x = torch.empty(size, dtype=torch.uint8, device="cuda"); del x
        try: torch.empty(1 << 40, device="cuda")
        except torch.OutOfMemoryError: pass
        print(torch.cuda.memory_stats()["num_alloc_retries"]); time.sleep(0.2)
        """,
        env=agent_run.environment(),
    )
    told = agent_run.records(records.Pressure)

    assert sum(line.retries for line in told) == 1
    assert done.stdout.split() == ["2"]


class HostileText(RuntimeError):
    def __str__(self):
        raise AssertionError("it was run")


class OutOfMemoryError(RuntimeError):
    pass


CupysOutOfMemoryError = type("OutOfMemoryError", (MemoryError,), {})


class CudaAPIError(Exception):
    def __str__(self):
        raise AssertionError("it was run")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB."), "out of memory"),
        (RuntimeError("HIP out of memory. Tried to allocate 2.00 MiB (GPU 0; ...)"), "out of memory"),
        (OutOfMemoryError("Caught OutOfMemoryError in worker 0.\nOriginal Traceback"), "exception"),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"), "outside the allocator"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "outside the allocator"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "outside the allocator"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), "outside the allocator"),
        (RuntimeError("CUDA driver error: out of memory"), "outside the allocator"),
        (RuntimeError("NCCL error\nLast error:\nCuda failure 2 'out of memory'"), "outside the allocator"),
        (RuntimeError("NCCL error\nLast error:\nFailed to CUDA calloc 64 bytes"), "outside the allocator"),
        (MemoryError("std::bad_alloc: … cudaErrorMemoryAllocation out of memory"), "outside the allocator"),
        (CupysOutOfMemoryError("Out of memory allocating 2,097,152 bytes"), "outside the allocator"),
        (CudaAPIError(2, "Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"), "outside the allocator"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling"), "exception"),
        (RuntimeError("NCCL error: unhandled cuda error"), "exception"),
        (ValueError("CUDA error: out of memory"), "exception"),
        (MemoryError(), "exception"),
        (HostileText("CUDA error: out of memory"), "exception"),
    ],
)  # fmt: skip
def test_an_exception_is_of_the_kind_that_its_own_message_says(error, kind):
    assert kind_of(error) == kind


def test_a_message_is_read_only_where_no_code_of_the_user_s_would_run():
    assert text_of(HostileText("x")) == ""
    assert text_of(ValueError(HostileText("x"))) == ""
    assert text_of(OutOfMemoryError("plain")) == "plain"
    assert text_of(KeyError("key")) == "'key'"

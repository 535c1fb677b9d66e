"""A whole log: who failed first, who was taken along, what is a repeat, and what is no failure at all."""
# ruff: noqa: E501  lines of logs are easier to compare whole

import os
import random
import resource
import subprocess
import sys
import textwrap

import pytest

from gpumem_tui.analysis.findings import Verdict, diagnose
from gpumem_tui.analysis.oomtext import Family, Scanner, situation
from gpumem_tui.analysis.oomtext.scanner import WINDOW_LINES

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wants}. GPU {gpu} has a total capacity of"
    " 23.64 GiB of which {free} is free. Including non-PyTorch memory, this process has 22.90 GiB memory in use."
    " Of the allocated memory 22.11 GiB is allocated by PyTorch, and 201.77 MiB is reserved by PyTorch but"
    " unallocated."
)


def oom(wants="1.50 GiB", gpu=0, free="720.31 MiB"):
    return OOM.format(wants=wants, gpu=gpu, free=free)


def read(text, block=1 << 20):
    data = text if isinstance(text, bytes) else textwrap.dedent(text).encode()
    scanner = Scanner()
    for start in range(0, len(data), block):
        scanner.feed(data[start : start + block])
    return scanner.finish()


def traceback(*frames):
    """A traceback of (file, function, code)."""
    lines = ["Traceback (most recent call last):"]
    for number, (file, function, code) in enumerate(frames, 10):
        lines += [f'  File "{file}", line {number}, in {function}', f"    {code}"]
    return "\n".join(lines)


MODULE = "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"
AUTOGRAD = "/opt/venv/lib/python3.11/site-packages/torch/autograd/__init__.py"
OPTIM = "/opt/venv/lib/python3.11/site-packages/torch/optim/adamw.py"
FORWARD = [
    (MODULE, "_wrapped_call_impl", "return self._call_impl(*args, **kwargs)"),
    ("net.py", "forward", "x = f(x)"),
]

PHASES = {
    "forward": [("train.py", "main", "loss = step(batch)"), *FORWARD],
    "backward": [("train.py", "main", "loss.backward()"), (AUTOGRAD, "backward", "_engine_run_backward(")],
    "backward, recomputing": [
        ("train.py", "main", "loss.backward()"),
        (AUTOGRAD, "_engine_run_backward", "return Variable._execution_engine.run_backward("),
        *FORWARD,
    ],
    "optimizer": [("train.py", "main", "optimizer.step()"), (OPTIM, "step", "adamw(")],
    "load": [("train.py", "main", "model.load_state_dict(torch.load(path))")],
    "load, moving": [("train.py", "main", 'model = build().to("cuda")'), (MODULE, "to", "return self._apply(convert)")],
    "save": [("train.py", "main", "torch.save(model.state_dict(), path)")],
    "eval": [("train.py", "main", "evaluate(model)"), ("train.py", "evaluate", "out = model(x)"), *FORWARD],
    "generate": [("serve.py", "reply", "ids = model.generate(**x)"), ("hf.py", "generate", "o = self(x)"), *FORWARD],
}  # fmt: skip


@pytest.mark.parametrize("name", PHASES)
def test_the_traceback_tells_the_phase(name):
    (failure,) = read(f"start\n{traceback(*PHASES[name])}\n{oom()}\n").failures

    assert failure.phase == name.partition(",")[0]


def test_a_traceback_without_a_phase_tells_none():
    (failure,) = read(
        traceback(("train.py", "main", "x = torch.empty(n, device='cuda')")) + f"\n{oom()}\n"
    ).failures

    assert failure.phase is None
    assert failure.user_frame == "train.py:10 in main"


def test_an_earlier_traceback_is_not_taken_for_this_failure():
    quiet = "still training\n" * 20
    (failure,) = read(f"{traceback(*PHASES['backward'])}\nValueError: no\n{quiet}{oom()}\n").failures

    assert failure.phase is None
    assert failure.user_frame is None


def test_making_optimizer_state_is_told_apart_from_later_steps():
    frames = [*PHASES["optimizer"], (OPTIM, "_init_group", 'state["exp_avg"] = torch.zeros_like(')]
    (failure,) = read(f"{traceback(*frames)}\n{oom()}\n").failures

    assert failure.phase == "optimizer"
    assert failure.first_optimizer_step


def test_interleaved_ranks_keep_their_own_tracebacks_and_figures():
    one = [*traceback(*PHASES["forward"]).split("\n"), oom("2.25 GiB", 1)]
    two = [*traceback(*PHASES["backward"]).split("\n"), oom("3.75 GiB", 2)]
    mixed = [
        line
        for pair in zip([f"[rank1]: {x}" for x in one], [f"[rank2]: {x}" for x in two], strict=False)
        for line in pair
    ]
    mixed += [f"[rank1]: {x}" for x in one[len(two) :]] + [f"[rank2]: {x}" for x in two[len(one) :]]

    failures = read("\n".join(mixed)).failures
    told = {f.rank: (f.phase, f.requested.printed, f.device) for f in failures}

    assert told == {1: ("forward", "2.25 GiB", 1), 2: ("backward", "3.75 GiB", 2)}


def test_equal_figures_of_two_ranks_are_two_failures():
    failures = read(f"[rank0]: {oom()}\n[rank1]: {oom()}\n").failures

    assert [f.rank for f in failures] == [0, 1]


def test_what_wrappers_repeat_is_one_failure():
    log = f"""\
(Worker_TP0 pid=71) ERROR 11-29 15:40:41 [multiproc_executor.py:671] {oom()}
(EngineCore_DP0 pid=60) ERROR 11-29 15:40:42 [core.py:843] RuntimeError: Worker failed with error '{oom()}'
{oom()}
FAILED tests/test_it.py::test_fit - torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 h...
"""
    (failure,) = read(log).failures

    assert failure.mentions == 4
    assert failure.mention_lines == (1, 2, 3, 4)
    assert (failure.worker, failure.pid) == ("Worker_TP0", 71)


def test_two_workers_of_one_kind_are_two_failures():
    failures = read(f"(Worker_TP0 pid=71) {oom()}\n(Worker_TP1 pid=72) {oom()}\n").failures

    assert [f.worker for f in failures] == ["Worker_TP0", "Worker_TP1"]


def test_a_dataloader_worker_and_its_re_raise_are_one():
    log = f"""\
Traceback (most recent call last):
  File "train.py", line 9, in main
    for batch in loader:
torch.OutOfMemoryError: Caught OutOfMemoryError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "data.py", line 5, in __getitem__
    return x.cuda()
{oom()}
"""
    (failure,) = read(log).failures

    assert failure.user_frame == "data.py:5 in __getitem__"
    assert failure.requested.printed == "1.50 GiB"


TORCHRUN = f"""\
[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator: Connection closed by peer
[rank2]: {oom(gpu=2)}
[rank0]: {oom("90.00 MiB", gpu=0, free="1.12 MiB")}
W1129 15:40:41.235 78 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 501 closing signal SIGTERM
W1129 15:40:41.235 78 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 504 closing signal SIGTERM
E1129 15:40:42.001 78 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 0 (pid: 500) of binary: /usr/bin/python3
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_15:40:41
  host      : node7
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 500)
  error_file: <N/A>
============================================================
"""


def test_torchrun_names_the_first_cause_and_the_victims():
    reading = read(TORCHRUN)
    roles = {f.rank: f.role for f in reading.failures}

    assert roles == {0: "first", 2: "later"}
    assert [(a.rank, a.pid) for a in reading.aftermath] == [(1, None), (None, 501), (None, 504)]
    assert [(r.rank, r.exit_code, r.pid) for r in reading.root_causes] == [(0, 1, 500)]


def test_without_a_summary_the_order_of_the_log_decides():
    failures = read(f"[rank5]: {oom()}\nlater\n[rank4]: {oom(gpu=4)}\n").failures

    assert [(f.rank, f.role) for f in failures] == [(5, "first"), (4, "later")]
    assert "first in the log" in failures[0].role_why


def test_a_root_cause_that_the_log_does_not_show_is_said():
    reading = read(TORCHRUN.replace("[rank0]", "[rank7]"))

    assert any("rank 0" in note for note in reading.notes)


PRESSURE = (
    "[W1129 15:40:41.235006973 CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device 0 while"
    " trying to allocate 1610612736 bytes (free: 755283763, total: 25383272448)."
)


def test_a_failed_driver_allocation_alone_is_pressure_and_no_failure():
    reading = read(f"{PRESSURE}\nepoch 1\n{PRESSURE}\nepoch 2\n")

    assert reading.failures == ()
    (pressure,) = reading.pressure
    assert (pressure.count, pressure.largest_bytes, pressure.least_free_bytes) == (2, 1610612736, 755283763)
    assert (pressure.first_line, pressure.last_line) == (1, 3)


def test_with_the_error_behind_it_it_gives_the_exact_request():
    reading = read(f"{PRESSURE}\n{PRESSURE}\n{oom()}\n")

    assert reading.pressure == ()
    assert reading.failures[0].requested.low_bytes == reading.failures[0].requested.high_bytes == 1610612736


def test_mapping_failures_of_expandable_segments_are_pressure_too():
    line = (
        "[rank1]:[W1129 15:40:41.1 CUDACachingAllocator.cpp:511] expandable_segments: memory mapping failed with OOM"
        " on device 1 while trying to map 20971520 bytes (free: 9437184, total: 25383272448)."
    )
    (pressure,) = read(line).pressure

    assert (pressure.rank, pressure.device, pressure.largest_bytes) == (1, 1, 20971520)


def test_all_words_on_one_host_kill_are_one_failure():
    log = """\
    [12345.678901] Memory cgroup out of memory: Killed process 4711 (python) total-vm:99kB, anon-rss:88kB
    slurmstepd: error: Detected 1 oom_kill event in StepId=31.0. Some of the step tasks have been OOM Killed.
    srun: error: node3: task 0: Out Of Memory
    /var/spool/job/slurm_script: line 9: 4711 Killed                  python train.py
    """
    (failure,) = read(log).failures

    assert failure.family is Family.HOST_KILL
    assert (failure.certain, failure.pid, failure.call) == (True, 4711, "31.0")


def test_a_kill_that_nobody_explains_is_doubtful():
    (failure,) = read("training\nKilled\n").failures

    assert failure.family is Family.HOST_KILL
    assert not failure.certain


def test_kills_after_a_device_failure_are_its_consequence():
    failures = read(f"{oom()}\nKilled\n").failures

    assert [f.family for f in failures] == [Family.ALLOCATOR]


def test_start_up_figures_of_vllm_are_read_for_planning():
    reading = read(
        """\
        (EngineCore_DP0 pid=9) INFO 11-29 15:40:41 [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 3.2 seconds
        (EngineCore_DP0 pid=9) INFO 11-29 15:41:02 [gpu_worker.py:298] Available KV cache memory: 4.87 GiB
        (EngineCore_DP0 pid=9) INFO 11-29 15:41:02 [kv_cache_utils.py:1087] GPU KV cache size: 39,872 tokens
        (EngineCore_DP0 pid=9) INFO 11-29 15:41:02 [kv_cache_utils.py:1091] Maximum concurrency for 8,192 tokens per request: 4.87x
        """
    )

    assert reading.failures == ()
    assert [(p.what, p.printed) for p in reading.planning] == [
        ("weights", "14.9889 GiB"),
        ("KV cache", "4.87 GiB"),
        ("KV cache tokens", "39,872"),
        ("concurrency", "8,192 tokens per request: 4.87x"),
    ]


BFC = """\
2024-05-14 23:55:51.585: W external/local_tsl/tsl/framework/bfc_allocator.cc:487] Allocator (GPU_0_bfc) ran out of memory trying to allocate 456.29MiB (rounded to 478458112)requested by op conv
If the cause is memory fragmentation maybe the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation.
Current allocation summary follows.
{chunks}2024-05-14 23:55:51.600: I external/local_tsl/tsl/framework/bfc_allocator.cc:1103] Sum Total of in-use chunks: 9.06GiB
2024-05-14 23:55:51.600: I external/local_tsl/tsl/framework/bfc_allocator.cc:1105] total_region_allocated_bytes_: {held} memory_limit_: 10619240448 available bytes: 0 curr_region_allocation_bytes_: 21238480896
2024-05-14 23:55:51.601: I external/local_tsl/tsl/framework/bfc_allocator.cc:1112] Stats:
Limit:                     10619240448
InUse:                      {live}
MaxInUse:                   9731837952
NumAllocs:                      119350
MaxAllocSize:               1212416000

2024-05-14 23:55:51.601: W external/local_tsl/tsl/framework/bfc_allocator.cc:499] ****************____
2024-05-14 23:55:51.602: W tensorflow/core/framework/op_kernel.cc:1827] OP_REQUIRES failed at conv_ops.cc:698 : RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[64,64,171,171] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    model.fit(x, y)
tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,64,171,171] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]
"""
CHUNK = "2024-05-14 23:55:51.590: I external/local_tsl/tsl/framework/bfc_allocator.cc:1083] InUse at 703b12d00 of size 256 next 274\n"


@pytest.mark.parametrize("chunks", [0, 5, 3000])
def test_a_dump_of_tensorflow_s_allocator_is_one_failure_with_the_figures_of_its_pool(chunks):
    text = BFC.format(chunks=CHUNK * chunks, held=10619240448, live=9731837952)
    (failure,) = read(text).failures

    assert (failure.family, failure.device, failure.line) == (Family.XLA, 0, 1)
    assert [f.bytes for f in (failure.requested, failure.allowed, failure.allocated, failure.reserved)] == [
        478458112,
        10619240448,
        9731837952,
        10619240448,
    ]


@pytest.mark.parametrize(
    ("held", "live", "verdict"),
    [
        (10619240448, 10431837952, Verdict.CAPACITY),
        (10619240448, 9731837952, Verdict.FRAGMENTATION),
        (9831837952, 9731837952, Verdict.UNKNOWN),  # the driver gave no more
    ],
)
def test_what_was_in_the_way_follows_from_the_figures_of_the_pool(held, live, verdict):
    (failure,) = read(BFC.format(chunks="", held=held, live=live)).failures

    assert diagnose(situation(failure))[0].verdict is verdict


def test_a_pool_s_figures_without_a_failure_are_none():
    assert read("Stats:\nLimit: 10619240448\nInUse: 256\nMaxInUse: 512\nNumAllocs: 2\n").failures == ()


def test_what_a_program_of_xla_takes_is_read_for_planning():
    reading = read(
        """\
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:  372.76MiB
              constant allocation:    48.5KiB
        maybe_live_out allocation:    9.64GiB
     preallocated temp allocation:    4.44GiB
                 total allocation:   14.44GiB
              total fragmentation:  680.30MiB (4.60%)
"""
    )

    assert [failure.family for failure in reading.failures] == [Family.XLA]
    assert [(p.what, p.printed) for p in reading.planning] == [
        ("XLA's program, parameters", "372.76MiB"),
        ("XLA's program, temporary", "4.44GiB"),
        ("XLA's program", "14.44GiB"),
    ]


def test_a_number_that_ends_its_message_does_not_go_on_in_the_next_line():
    ended = "Failed to allocate memory for requested buffer of size 643840"
    (failure,) = read(f"{ended}\n50 of 100 done\n").failures
    (wrapped,) = read(f"{ended[:-3]}\n{ended[-3:]}\nbye\n").failures

    assert (failure.requested.bytes, wrapped.requested.bytes) == (643840, 643840)


def test_a_size_that_no_card_has_is_a_wrong_size():
    (failure,) = read("Failed to allocate memory for requested buffer of size 4585490524328388608\n").failures

    assert diagnose(situation(failure))[0].verdict is Verdict.IMPOSSIBLE_SIZE


def test_a_server_that_refuses_to_start_is_given_what_fits():
    share = "Free memory on device (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB)"
    cache = (
        "To serve at least one request with the model's max seq len (100000), (4.26 GiB KV cache is needed, which is larger"
        " than the available KV cache memory (4.25 GiB). Based on the available memory, the estimated maximum model length is"
        " 99744."
    )
    trials = [diagnose(situation(read(text).failures[0]))[0].trial for text in (share, cache)]

    assert "gpu_memory_utilization 0.89" in trials[0]
    assert "max_model_len 99744" in trials[1]


def test_a_tactic_that_a_builder_skips_is_no_certain_failure():
    text = "Skipping tactic 3 due to insufficient memory on requested size of 4294967296 detected for tactic 0x4."
    (failure,) = read(f"[TRT] [W] {text}\n").failures

    assert not failure.certain
    assert "by itself that ends nothing" in diagnose(situation(failure))[0].headline


NO_FAILURE = [
    "W bfc_allocator.cc:243] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB with freed_by_count=0. The"
    " caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were"
    " available.\n",
    "[I:onnxruntime:log, bfc_arena.cc:306 AllocateRawInternal] Extending BFCArena for Cuda. bin_num:9 (requested)"
    " num_bytes: 160000 (actual) rounded_bytes:160000\n",
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.\n",
    "",
    "\n",
    "epoch 3 loss 0.2 peak memory 12.31 GiB, allocated 9.00 GiB, reserved 11.2 GiB\n",
    "# if you see CUDA out of memory, lower the batch size\n",
    '    if "CUDA out of memory" in str(error):\n',
    "except torch.cuda.OutOfMemoryError:\n",
    "Skilled workers; the killed feature; oom_score_adj is 0\n",
    "NCCL INFO Channel 00/02 : 0 1 2 3\nNCCL INFO comm 0x55 rank 0 nranks 4 cudaDev 0 - Init COMPLETE\n",
    "RuntimeError: CUDA error: device-side assert triggered\n",
    "Sending process 12 closing signal SIGTERM\n",
    "exit code 0\nfailed (exitcode: 1) local_rank: 0 (pid: 9) of binary: python\n",
    "torch.cuda.max_memory_allocated() = 1.2 GiB of 24 GiB total capacity\n",
    "Unable to find a checkpoint; starting anew\n",
]


@pytest.mark.parametrize("text", NO_FAILURE)
def test_a_log_without_a_failure_yields_none(text):
    reading = read(text)

    assert (reading.failures, reading.aftermath, reading.pressure) == ((), (), ())


@pytest.mark.parametrize("block", [1, 7, 100, 4096, 1 << 20])
def test_how_the_log_is_cut_into_blocks_does_not_matter(block):
    text = ("step 1 of many\n" * 30 + TORCHRUN + f"[rank6]: {oom('7.00 GiB')}\n") * 2

    assert read(text, block) == read(text)


def test_a_message_at_the_end_of_an_endless_line_is_found():
    (failure,) = read(b"x " * 2_000_000 + oom().encode() + b" y" * 2_000_000).failures

    assert failure.requested.printed == "1.50 GiB"
    assert len(failure.text) <= 200


def test_failures_in_a_stretch_longer_than_the_window_are_all_found():
    many = WINDOW_LINES * 2 + 17
    failures = read("".join(f"[rank{n}]: {oom(gpu=n % 8)}\n" for n in range(many))).failures

    assert [f.rank for f in failures] == list(range(1000))[:many]


def test_more_than_a_thousand_failures_are_counted():
    reading = read("".join(f"[rank{n}]: {oom()}\n" for n in range(1005)))

    assert len(reading.failures) == 1000
    assert reading.failures_not_kept == 5


def test_control_characters_of_the_log_never_reach_the_facts():
    (failure,) = read(
        "\x1b]0;title\x07\x07\x00" + oom().replace("GPU", "G\x08PU").replace("CUDA out", "CUDA\x1b[1m out")
    ).failures

    assert failure.text.isprintable()
    assert failure.requested.printed == "1.50 GiB"


@pytest.mark.slow
def test_two_hundred_megabytes_are_read_in_bounded_memory():
    program = rf"""
import re
from gpumem_tui.analysis.oomtext import Scanner
oom = {oom()!r}
line = b"step 12 loss 0.25 allocated 3.1 GiB 7.9 it/s\n" * 20000
scanner = Scanner()
scanner.feed(b"start\n")
def peak_kib(): return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])  # ru_maxrss begins with its parent's
before = peak_kib()
for n in range(220):
    scanner.feed(line)
    scanner.feed(f"[rank{{n % 4}}]: {{oom}}\n".encode())
reading = scanner.finish()
after = peak_kib()
print(reading.bytes, len(reading.failures), sum(f.mentions for f in reading.failures), after - before)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    size, failures, mentions, grown_kib = map(int, out.split())

    assert size > 200_000_000 * 0.9
    assert (failures, mentions) == (4, 220)
    assert grown_kib < 64 << 10


@pytest.mark.slow
def test_a_line_of_half_a_gigabyte_ends_cleanly_and_is_read_to_its_end():
    reading, grown_kib = read_repeated(b"x" * (1 << 20), 512, oom().encode())

    assert reading.lines == 1
    assert [failure.requested.printed for failure in reading.failures] == ["1.50 GiB"]
    assert grown_kib < 64 << 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [os.urandom, bytes, lambda n: b"\n" * n, lambda n: b"[rank1]:" * (n // 8)],
    ids=["random", "zeros", "newlines", "prefixes"],
)
def test_megabytes_of_garbage_end_cleanly(make):
    reading, grown_kib = read_repeated(make(1 << 20), 16, b"")

    assert reading.failures == ()
    assert grown_kib < 64 << 10


def read_repeated(block, times, last):
    """A log of one block again and again; what it says, and by how much the process grew."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scanner = Scanner()
    for _ in range(times):
        scanner.feed(block)
    scanner.feed(last)
    return scanner.finish(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def test_random_order_of_many_ranks_loses_none():
    rng = random.Random(4)
    lines = [f"[rank{n}]: {oom(gpu=n)}" for n in range(16)] + [f"step {n}" for n in range(400)]
    rng.shuffle(lines)

    assert sorted(f.rank for f in read("\n".join(lines)).failures) == list(range(16))

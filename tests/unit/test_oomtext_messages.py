"""Every family of message, in every wrapping, gives exactly the figures that it prints."""
# ruff: noqa: E501  messages and wrappings are easier to compare on one line

import json
import re

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpumem_tui.analysis.oomtext import Family, Figure, Scanner

HINT_OLD = (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
    "  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
HINT_NEW = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    " to avoid fragmentation.  See documentation for Memory Management"
    "  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 40.30 GiB. GPU 2 has a total capacity of"
    " 79.11 GiB of which 3.77 GiB is free. Process 4242 has 11.52 GiB memory in use. Including non-PyTorch memory,"
    " this process has 63.81 GiB memory in use. 70.25 GiB allowed; Of the allocated memory 52.06 GiB is allocated"
    " by PyTorch, with 1.19 GiB allocated in private pools (e.g., CUDA Graphs), and 10.58 GiB is reserved by"
    " PyTorch but unallocated." + HINT_NEW
)
NEW_FIELDS = {
    "backend": "CUDA",
    "device": 2,
    "requested": "40.30 GiB",
    "total": "79.11 GiB",
    "free": "3.77 GiB",
    "holders": [(4242, "11.52 GiB")],
    "own": "63.81 GiB",
    "allowed": "70.25 GiB",
    "allocated": "52.06 GiB",
    "private_pools": "1.19 GiB",
    "idle": "10.58 GiB",
    "hint": "expandable_segments",
}

MESSAGES = {
    "1.3 and before": (
        "RuntimeError: CUDA out of memory. Tried to allocate 170.00 MiB (GPU 1; 10.92 GiB total capacity; 9.61 GiB"
        " already allocated; 45.50 MiB free; 311.72 MiB cached)",
        Family.ALLOCATOR,
        {
            "backend": "CUDA",
            "device": 1,
            "requested": "170.00 MiB",
            "total": "10.92 GiB",
            "allocated": "9.61 GiB",
            "free": "45.50 MiB",
            "idle": "311.72 MiB",
        },
    ),
    "1.4 to 1.10": (
        "RuntimeError: CUDA out of memory. Tried to allocate 98.00 MiB (GPU 0; 7.93 GiB total capacity; 6.88 GiB"
        " already allocated; 21.31 MiB free; 7.02 GiB reserved in total by PyTorch)",
        Family.ALLOCATOR,
        {
            "backend": "CUDA",
            "device": 0,
            "requested": "98.00 MiB",
            "total": "7.93 GiB",
            "allocated": "6.88 GiB",
            "free": "21.31 MiB",
            "reserved": "7.02 GiB",
        },
    ),
    "1.8 with a cap": (
        "RuntimeError: CUDA out of memory. Tried to allocate 1.12 GiB (GPU 0; 15.90 GiB total capacity; 3.01 GiB"
        " already allocated; 11.87 GiB free; 3.98 GiB allowed; 3.11 GiB reserved in total by PyTorch)",
        Family.ALLOCATOR,
        {
            "backend": "CUDA",
            "device": 0,
            "requested": "1.12 GiB",
            "total": "15.90 GiB",
            "allocated": "3.01 GiB",
            "free": "11.87 GiB",
            "allowed": "3.98 GiB",
            "reserved": "3.11 GiB",
        },
    ),
    "1.11 to 2.0": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512 bytes (GPU 3; 1024.00 MiB total"
        " capacity; 700.13 MiB already allocated; 0 bytes free; 718.00 MiB reserved in total by PyTorch)" + HINT_OLD,
        Family.ALLOCATOR,
        {
            "backend": "CUDA",
            "device": 3,
            "requested": "512 bytes",
            "total": "1024.00 MiB",
            "allocated": "700.13 MiB",
            "free": "0 bytes",
            "reserved": "718.00 MiB",
            "hint": "max_split_size_mb",
        },
    ),
    "2.1, with its typo": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 34.00 MiB. GPU 0 has a total capacty of"
        " 23.69 GiB of which 12.94 MiB is free. Process 77 has 23.66 GiB memory in use. Of the allocated memory"
        " 22.80 GiB is allocated by PyTorch, and 417.53 MiB is reserved by PyTorch but unallocated. If reserved but"
        " unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  See documentation",
        Family.ALLOCATOR,
        {
            "backend": "CUDA",
            "device": 0,
            "requested": "34.00 MiB",
            "total": "23.69 GiB",
            "free": "12.94 MiB",
            "holders": [(77, "23.66 GiB")],
            "allocated": "22.80 GiB",
            "idle": "417.53 MiB",
            "hint": "max_split_size_mb",
        },
    ),
    "2.2 and later, with everything": (NEW, Family.ALLOCATOR, NEW_FIELDS),
    "a driver without figures": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
        " 11.99 GiB of which 0 bytes is free. Process 31 has 17179869184.00 GiB memory in use. Process 32 has"
        " 0 bytes memory in use. Of the allocated memory 9.31 GiB is allocated by PyTorch, and 88.49 MiB is"
        " reserved by PyTorch but unallocated." + HINT_NEW,
        Family.ALLOCATOR,
        {
            "backend": "CUDA",
            "device": 0,
            "requested": "2.00 GiB",
            "total": "11.99 GiB",
            "free": "0 bytes",
            "holders": [(31, None), (32, None)],
            "allocated": "9.31 GiB",
            "idle": "88.49 MiB",
            "hint": "expandable_segments",
        },
    ),
    "rejected in advance": (
        "torch.OutOfMemoryError: CUDA out of memory. Allocation was preemptively rejected because it would exceed"
        " per_process_memory_fraction limit. Requested size: 5.61 GiB",
        Family.REJECTED,
        {"backend": "CUDA", "requested": "5.61 GiB"},
    ),
    "more than 1 EB": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
        Family.EXABYTE,
        {"backend": "CUDA"},
    ),
    "cudaMallocAsync": (
        "torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of memory)\n"
        "Currently allocated     : 13.70 GiB\nRequested               : 3.06 GiB\n"
        "Device limit            : 15.77 GiB\nFree (according to CUDA): 1.44 GiB\n"
        "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
        Family.ASYNC,
        {
            "backend": "CUDA",
            "device": 1,
            "allocated": "13.70 GiB",
            "requested": "3.06 GiB",
            "total": "15.77 GiB",
            "free": "1.44 GiB",
            "allowed": None,
        },
    ),
    "HIP": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 6.20 GiB. GPU 5 has a total capacity of"
        " 63.98 GiB of which 4.31 GiB is free. Of the allocated memory 57.02 GiB is allocated by PyTorch, with"
        " 92.00 MiB allocated in private pools (e.g., HIP Graphs), and 1.33 GiB is reserved by PyTorch but"
        " unallocated. If reserved but unallocated memory is large try setting"
        " PYTORCH_HIP_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        Family.ALLOCATOR,
        {
            "backend": "HIP",
            "device": 5,
            "requested": "6.20 GiB",
            "total": "63.98 GiB",
            "free": "4.31 GiB",
            "allocated": "57.02 GiB",
            "private_pools": "92.00 MiB",
            "idle": "1.33 GiB",
            "hint": "expandable_segments",
        },
    ),
    "XPU": (
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.74 GiB. GPU 0 has a total capacity of"
        " 15.91 GiB. Of the allocated memory 14.20 GiB is allocated by PyTorch, and 301.28 MiB is reserved by"
        " PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.",
        Family.ALLOCATOR,
        {
            "backend": "XPU",
            "device": 0,
            "requested": "1.74 GiB",
            "total": "15.91 GiB",
            "allocated": "14.20 GiB",
            "idle": "301.28 MiB",
            "hint": "empty_cache",
        },
    ),
    "MPS": (
        "RuntimeError: MPS backend out of memory (MPS allocated: 16.51 GiB, other allocations: 1.27 GiB, max allowed:"
        " 18.13 GiB). Tried to allocate 640.00 MiB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to"
        " disable upper limit for memory allocations (may cause system failure).",
        Family.MPS,
        {
            "backend": "MPS",
            "allocated": "16.51 GiB",
            "other_allocations": "1.27 GiB",
            "allowed": "18.13 GiB",
            "requested": "640.00 MiB",
            "hint": "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
        },
    ),
    "MPS without a limit, older units": (
        "RuntimeError: MPS backend out of memory (MPS allocated: 7.25 GB, other allocations: 96.50 MB). Tried to"
        " allocate 1.50 GB on shared pool.",
        Family.MPS,
        {
            "backend": "MPS",
            "allocated": "7.25 GB",
            "other_allocations": "96.50 MB",
            "requested": "1.50 GB",
        },
    ),
    "NPU": (
        "RuntimeError: NPU out of memory. Tried to allocate 402.00 MiB (NPU 6; 29.50 GiB total capacity; 27.33 GiB"
        " already allocated; 27.33 GiB current active; 210.75 MiB free; 28.61 GiB reserved in total by PyTorch)",
        Family.ALLOCATOR,
        {
            "backend": "NPU",
            "device": 6,
            "requested": "402.00 MiB",
            "total": "29.50 GiB",
            "allocated": "27.33 GiB",
            "free": "210.75 MiB",
            "reserved": "28.61 GiB",
        },
    ),
    "NVML assertion": (
        "RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at"
        ' "/build/pytorch/c10/cuda/CUDACachingAllocator.cpp":1015, please report a bug to PyTorch.',
        Family.NVML_ASSERT,
        {},
    ),
    "CUDA error": (
        "torch.AcceleratorError: CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in"
        " https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.",
        Family.DRIVER,
        {"backend": "CUDA"},
    ),
    "cuBLAS": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        Family.LIBRARY,
        {"call": "CUBLAS_STATUS_ALLOC_FAILED in cublasCreate"},
    ),
    "Triton": ("RuntimeError: Triton Error [CUDA]: out of memory", Family.DRIVER, {"backend": "CUDA"}),
    "CuPy": (
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 9,663,676,416 bytes (allocated so far: 512 bytes).",
        Family.CUPY,
        {"call": "CuPy", "requested": "9,663,676,416 bytes", "allocated": "512 bytes"},
    ),
    "CuPy with a limit": (
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 805,306,368 bytes (allocated so far: 536,870,912"
        " bytes, limit set to: 1,073,741,824 bytes).",
        Family.CUPY,
        {
            "call": "CuPy",
            "requested": "805,306,368 bytes",
            "allocated": "536,870,912 bytes",
            "allowed": "1,073,741,824 bytes",
        },
    ),
    "CuPy before 7": (
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1073741824 bytes (total 12373894656 bytes)",
        Family.CUPY,
        {"call": "CuPy", "requested": "1073741824 bytes", "allocated": "12373894656 bytes"},
    ),
    "XLA": (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232"
        " bytes.",
        Family.XLA,
        {"call": "JAX or TensorFlow", "requested": "4770354232 bytes"},
    ),
    "XLA, rounded": (
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 14.50GiB.",
        Family.XLA,
        {"call": "JAX or TensorFlow", "requested": "14.50 GiB"},
    ),
    "XLA's request": (
        "RuntimeError: Resource exhausted: Failed to allocate request for 87.48GiB (93935126000B) on device ordinal 3",
        Family.XLA,
        {"call": "JAX or TensorFlow", "requested": "87.48 GiB", "device": 3},
    ),
    "TensorFlow's allocator": (
        "2024-05-14 23:55:51.585000: W external/local_tsl/tsl/framework/bfc_allocator.cc:487] Allocator (GPU_1_bfc) ran"
        " out of memory trying to allocate 5.96GiB (rounded to 6402703616)requested by op ",
        Family.XLA,
        {"call": "JAX or TensorFlow", "requested": "5.96 GiB", "device": 1},
    ),
    "TensorFlow": (
        "ResourceExhaustedError: OOM when allocating tensor with shape[3,3,512,1024] and type float on"
        " /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Mul]",
        Family.XLA,
        {"call": "TensorFlow", "requested": "shape[3,3,512,1024] and type float", "device": 0},
    ),
    "TensorFlow 1 without a type": (
        "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with shape[1,5095,3729,3]",
        Family.XLA,
        {"call": "TensorFlow"},
    ),
    "TensorFlow without a figure": (
        "ResourceExhaustedError: failed to allocate memory [Op:AddV2]",
        Family.XLA,
        {"call": "TensorFlow"},
    ),
    "TensorFlow in host memory": (
        "ResourceExhaustedError: OOM when allocating tensor with shape[40000,40000] and type double on"
        " /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu [Op:Fill]",
        Family.HOST_ALLOCATION,
        {"requested": "shape[40000,40000] and type double"},
    ),
    "XLA over cudaMallocAsync": (
        "E1103 18:23:55.103160 3413767 gpu_cudamallocasync_allocator.cc:361] gpu_async_1 cuMemAllocAsync failed to"
        " allocate 1225195446464 bytes: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
        " Reported by CUDA: Free memory/Total memory: 22635544576/85095874560",
        Family.XLA,
        {
            "call": "JAX or TensorFlow",
            "requested": "1225195446464 bytes",
            "free": "22635544576",
            "total": "85095874560",
        },
    ),
    "TensorFlow's pool, perhaps": (
        "E tensorflow/stream_executor/cuda/cuda_driver.cc:828] failed to allocate 17.79G (19104890880 bytes) from"
        " device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        Family.XLA,
        {
            "call": "the pool that TensorFlow or JAX makes at its start",
            "requested": "19104890880 bytes",
            "certain": False,
        },
    ),
    "ONNX Runtime": (
        "onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException: [ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION :"
        " Non-zero status code returned while running Conv node. Name:'/fc1/Conv' Status Message:"
        " /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void*"
        " onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*, bool,"
        " onnxruntime::WaitNotificationFn) Failed to allocate memory for requested buffer of size 2830172160",
        Family.ONNX,
        {"call": "ONNX Runtime", "requested": "2830172160"},
    ),
    "ONNX Runtime's CUDA": (
        "onnxruntime::CudaCall CUDA failure 2: out of memory ; GPU=1 ; hostname=n4 ; expr=cudaMalloc((void**)&p, size);",
        Family.ONNX,
        {"call": "ONNX Runtime", "device": 1},
    ),
    "TensorRT": (
        "[TRT] [E] 2: [virtualMemoryBuffer.cpp::nvinfer1::StdVirtualMemoryBufferImpl::resizePhysical::145] Error Code 2:"
        " OutOfMemory (no further information)",
        Family.TENSORRT,
        {"call": "TensorRT"},
    ),
    "TensorRT 10": (
        "[executionContext.cpp::initializeExecutionContext::625] Error Code 2: OutOfMemory (Requested size was"
        " 20132809216 bytes.)",
        Family.TENSORRT,
        {"call": "TensorRT", "requested": "20132809216 bytes"},
    ),
    "TensorRT's request": (
        "[TRT] [W] Requested amount of GPU memory (4294967296 bytes) could not be allocated. There may not be enough"
        " free memory for allocation to succeed.",
        Family.TENSORRT,
        {"call": "TensorRT", "requested": "4294967296 bytes"},
    ),
    "TensorRT's builder, perhaps": (
        "[TRT] [W] Skipping tactic 3 due to insufficient memory on requested size of 4294967296 detected for tactic"
        " 0x0000000000000004.",
        Family.TENSORRT,
        {"call": "a tactic that TensorRT's builder skipped", "requested": "4294967296", "certain": False},
    ),
    "PaddlePaddle": (
        "Out of memory error on GPU 2. Cannot allocate 3.621826GB memory on GPU 2,"
        " 21.184814GB memory has been allocated and available memory is only 2.814575GB.",
        Family.PADDLE,
        {
            "call": "PaddlePaddle",
            "device": 2,
            "requested": "3.621826 GB",
            "allocated": "21.184814 GB",
            "free": "2.814575 GB",
        },
    ),
    "llama.cpp": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory",
        Family.GGML,
        {"call": "llama.cpp", "device": 1, "requested": "9866.00 MiB"},
    ),
    "vLLM's share": (
        "ValueError: Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU memory"
        " utilization (0.9, 19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        Family.SERVER,
        {"call": "vLLM", "device": 1, "free": "19.77", "total": "22.05", "requested": "19.84"},
    ),
    "vLLM's cache": (
        "ValueError: To serve at least one request with the models's max seq len (262144), (24.0 GiB KV cache is needed,"
        " which is larger than the available KV cache memory (3.18 GiB). Based on the available memory, the estimated"
        " maximum model length is 34736. Try increasing `gpu_memory_utilization`",
        Family.SERVER,
        {"call": "vLLM", "requested": "24.0", "room": "3.18"},
    ),
    "vLLM 0": (
        "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV"
        " cache (3664). Try increasing `gpu_memory_utilization`",
        Family.SERVER,
        {"call": "vLLM"},
    ),
    "vLLM without a cache": (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing"
        " the engine.",
        Family.SERVER,
        {"call": "vLLM"},
    ),
    "SGLang": (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value:"
        " mem_fraction_static=0.84",
        Family.SERVER,
        {"call": "SGLang"},
    ),
    "TGI": (
        "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`",
        Family.SERVER,
        {"call": "TGI"},
    ),
    "cuDNN, perhaps": (
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
        Family.LIBRARY,
        {"call": "CUDNN_STATUS_NOT_INITIALIZED", "certain": False},
    ),
    "cuDNN engine, perhaps": (
        "RuntimeError: GET was unable to find an engine to execute this computation",
        Family.LIBRARY,
        {"call": "cuDNN found no engine", "certain": False},
    ),
    "NCCL": (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93,"
        " unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5\n"
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Failed to CUDA calloc async 16777216 bytes",
        Family.NCCL,
        {"requested": "16777216 bytes"},
    ),
    "NCCL without a word on memory": (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error (run with"
        " NCCL_DEBUG=INFO for details), NCCL version 2.21.5",
        Family.NCCL,
        {"certain": False},
    ),
    "Slurm": (
        "slurmstepd: error: Detected 2 oom_kill events in StepId=81234.0. Some of the step tasks have been OOM"
        " Killed.",
        Family.HOST_KILL,
        {"call": "81234.0"},
    ),
    "Slurm, older": (
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=551.batch. Some of your processes may have been"
        " killed by the cgroup out-of-memory handler.",
        Family.HOST_KILL,
        {"call": "551.batch"},
    ),
    "kernel": (
        "Memory cgroup out of memory: Killed process 90210 (python) total-vm:91234567kB, anon-rss:64123456kB",
        Family.HOST_KILL,
        {"pid": 90210},
    ),
    "Kubernetes": (
        "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
        Family.HOST_KILL,
        {},
    ),
    "shell": ("./train.sh: line 12: 40817 Killed                  python train.py", Family.HOST_KILL, {
        "pid": 40817,
        "certain": False,
    }),
    "bad_alloc": (
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        Family.HOST_ALLOCATION,
        {},
    ),
    "CPU allocator": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you"
        " tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)",
        Family.HOST_ALLOCATION,
        {"requested": "68719476736 bytes"},
    ),
    "shared memory": (
        "RuntimeError: DataLoader worker (pid 6071) is killed by signal: Bus error. It is possible that dataloader's"
        " workers are out of shared memory. Please try to raise your shared memory limit.",
        Family.SHARED_MEMORY,
        {"pid": 6071},
    ),
}  # fmt: skip

RMM = (
    "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /rmm/mr/device/cuda_memory_resource.hpp:70:"
    " cudaErrorMemoryAllocation out of memory"
)

PLAIN = ("backend", "device", "hint", "call", "pid")
SIZES = (
    *("requested", "total", "free", "allocated", "idle", "reserved", "private_pools", "allowed", "own"),
    *("other_allocations", "room"),
)


def read(text):
    """What the scanner makes of a text."""
    scanner = Scanner()
    scanner.feed(text if isinstance(text, bytes) else text.encode())
    return scanner.finish()


def printed(figure):
    """A figure as the text prints it; None for one that stands for "not told"."""
    return figure.printed if figure.bytes is not None else None


def fields_of(failure):
    """What a failure says beside its place: only what is there."""
    found = {name: getattr(failure, name) for name in PLAIN if getattr(failure, name) is not None}
    found |= {n: printed(getattr(failure, n)) for n in SIZES if getattr(failure, n) is not None}
    if failure.holders:
        found["holders"] = [(holder.pid, printed(holder.used)) for holder in failure.holders]
    if not failure.certain:
        found["certain"] = False
    return found


@pytest.mark.parametrize("name", MESSAGES)
def test_each_family_gives_exactly_what_it_prints(name):
    text, family, fields = MESSAGES[name]

    (failure,) = read(f"epoch 3\n{text}\nbye\n").failures

    assert failure.family is family
    assert fields_of(failure) == fields
    assert failure.line == (3 if name == "Kubernetes" else 2)


def test_an_error_of_the_host_by_its_class_that_tells_of_the_driver_is_of_the_driver():
    (failure,) = read(RMM).failures

    assert failure.family is Family.DRIVER


def test_a_failed_call_of_the_driver_is_read_with_what_stands_before_it():
    (failure,) = read(
        "alloc_buffer: allocating 4096.00 MiB on device 1: cudaMalloc failed: out of memory"
    ).failures

    assert failure.family is Family.DRIVER
    assert fields_of(failure) == {"device": 1, "requested": "4096.00 MiB"}


@pytest.mark.parametrize("name", MESSAGES)
def test_each_family_is_found_where_nothing_follows(name):
    text, family, fields = MESSAGES[name]

    (failure,) = read(text).failures

    assert (failure.family, fields_of(failure)) == (family, fields)


def lines(prefix):
    """A wrapping that puts something before every line."""
    return lambda text: "".join(f"{prefix}{line}\n" for line in text.split("\n"))


def wrapped_at(cells):
    """A hard wrap that splits words and figures."""
    return lambda text: "".join(
        f"{line[at : at + cells]}\n" for line in text.split("\n") for at in range(0, max(1, len(line)), cells)
    )


WRAPPINGS = {
    "rank": lines("[rank3]: "),
    "rank in the middle of a progress bar": lambda t: " 45%|████▌     | 45/100 [00:31<00:38]" + lines("[rank3]: ")(t),
    "torchrun's tee": lines("[default2]:"),
    "mpirun": lines("[1,3]<stderr>:"),
    "Ray": lines("(RayTrainWorker pid=8123, ip=10.1.2.3) "),
    "vLLM": lines("(Worker_TP1 pid=77) ERROR 11-29 15:40:41 [multiproc_executor.py:671] "),
    "colour": lambda t: lines("\x1b[36m(Worker pid=12)\x1b[0m ")(f"\x1b[1;31m{t}\x1b[0m"),
    "colour without its escape": lambda t: lines("[36m(Worker pid=12)[0m ")(f"[1;31m{t}[0m"),
    "colour spelt out": lambda t: lines("\\x1b[36m(Worker pid=12)\\x1b[0m ")(t),
    "CI's time": lines("2026-11-29T15:40:41.2350069Z "),
    "logging": lines("2026-11-29 15:40:41,235 - ERROR - "),
    "syslog": lines("Nov 29 15:40:41 node7 train[913]: "),
    "compose": lines("trainer-0  | "),
    "host": lines("node12: "),
    "srun's label": lines("3: "),
    "pytest": lines("E   "),
    "quote": lines("> "),
    "quote in a quote": lines("> > "),
    "comment": lines("# "),
    "list": lines("  - "),
    "Markdown table": lambda t: f"| job 3 | {t.replace(chr(10), '<br>')} | failed |\n",
    "rich box": lambda t: "".join(f"│ {line:<60} │\n" for line in t.split("\n")),
    "wrapped at 40": wrapped_at(40),
    "wrapped at 80": wrapped_at(80),
    "wrapped and quoted": lambda t: lines("> ")(wrapped_at(71)(t).rstrip("\n")),
    "wrapped after a rank": lambda t: wrapped_at(79)(f"[rank3]: {t}"),
    "JSON": lambda t: json.dumps({"level": "error", "message": t}) + "\n",
    "repr": lambda t: f"[OutOfMemoryError('{t}')]\n".replace("\n", "\\n", t.count("\n")),
    "carriage returns": lambda t: "\r 10%|█  | 1/10\r 20%|██ | 2/10\r" + t.replace("\n", "\r\n") + "\r\n",
    "no-break spaces": lambda t: t.replace(" ", "\u00a0") + "\n",
    "Jupyter": lambda t: "".join(f"File ~/m.py:{n}, in f{n}(x)\n" for n in range(80)) + f"\n{t}\n",
}  # fmt: skip

LINEWISE = ("shell", "Kubernetes")
"""Recognised by the shape of a whole line, so not where lines are cut."""
CUTTING = re.compile("wrapped|Markdown|rich|JSON|repr|no-break")


@pytest.mark.parametrize(
    ("name", "wrapping"),
    [(n, w) for n in MESSAGES for w in WRAPPINGS if not (n in LINEWISE and CUTTING.search(w))],
)
def test_no_wrapping_changes_a_figure(name, wrapping):
    text, family, fields = MESSAGES[name]
    wrapped = WRAPPINGS[wrapping](text)

    failures = read(f"epoch 3\n{wrapped}bye\n").failures

    assert [failure.family for failure in failures] == [family]
    told = fields_of(failures[0])
    if "pid" not in fields:
        told.pop("pid", None)  # the worker's, from its prefix
    assert told == fields


@pytest.mark.parametrize("name", sorted(set(MESSAGES) - set(LINEWISE)))
def test_a_hard_wrap_at_any_width_changes_no_figure(name):
    text, family, fields = MESSAGES[name]

    for cells in range(30, 180):
        wrapped = wrapped_at(cells)(text)
        if name == "llama.cpp" and re.search(r"\n ?1: cudaMalloc", wrapped):
            continue  # reads as a label of srun's
        (failure,) = read(wrapped).failures

        assert (failure.family, fields_of(failure)) == (family, fields), cells


@pytest.mark.parametrize(
    ("wrapping", "who"),
    [
        ("rank", {"rank": 3}),
        ("rank in the middle of a progress bar", {"rank": 3}),
        ("wrapped after a rank", {"rank": 3}),
        ("mpirun", {"rank": 3}),
        ("torchrun's tee", {"local_rank": 2}),
        ("Ray", {"worker": "RayTrainWorker", "pid": 8123}),
        ("vLLM", {"worker": "Worker_TP1", "pid": 77}),
        ("colour", {"worker": "Worker", "pid": 12}),
        ("colour without its escape", {"worker": "Worker", "pid": 12}),
        ("srun's label", {"worker": "task 3"}),
        ("host", {"worker": "node12"}),
        ("pytest", {}),
    ],
)
def test_the_prefix_tells_who_it_was(wrapping, who):
    (failure,) = read(WRAPPINGS[wrapping](NEW)).failures
    told = {name: getattr(failure, name) for name in ("rank", "local_rank", "worker", "pid")}

    assert {name: value for name, value in told.items() if value is not None} == who


STACKABLE = sorted(
    ["rank", "Ray", "vLLM", "colour", "CI's time", "logging", "compose", "pytest", "quote", "comment", "list"]
)


@given(
    names=st.lists(st.sampled_from(sorted(set(MESSAGES) - set(LINEWISE))), min_size=1, max_size=1),
    stack=st.lists(st.sampled_from(STACKABLE), max_size=4, unique=True),
    cells=st.one_of(st.none(), st.integers(40, 200)),
    before=st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=6),
)
def test_stacked_wrappings_change_no_figure_either(names, stack, cells, before):
    text, family, fields = MESSAGES[names[0]]
    if cells is not None:
        text = wrapped_at(cells)(text).rstrip("\n")
    for wrapping in stack:
        text = WRAPPINGS[wrapping](text).rstrip("\n")
    noise = "\n".join(line.replace("out of", "") for line in before)
    assume(not read(noise).failures)  # a lone "MemoryError" is a message of its own

    failures = read(f"{noise}\n\n\n{text}\n").failures

    assert [failure.family for failure in failures] == [family]
    told = fields_of(failures[0])
    told.pop("pid", None)
    assert told == {name: value for name, value in fields.items() if name != "pid"}


@given(name=st.sampled_from(sorted(MESSAGES)), data=st.data())
def test_a_damaged_message_gives_no_figure_that_was_not_printed(name, data):
    text = MESSAGES[name][0]
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 60))
    filler = data.draw(st.text("abcxyz%&@ \n", max_size=20))
    damaged = text[:start] + filler + text[start + length :]
    squeezed = "".join(damaged.split())

    for failure in read(damaged).failures:
        for figure in filter(None, (getattr(failure, field) for field in SIZES)):
            assert figure.printed.replace(" ", "") in squeezed


@given(cut=st.integers(0, len(NEW)))
def test_a_message_cut_short_keeps_what_stands_and_invents_nothing(cut):
    failures = read(NEW[:cut]).failures

    for failure in failures:
        told = fields_of(failure)
        holders = told.pop("holders", [])
        assert told.items() <= NEW_FIELDS.items()
        assert holders in ([], NEW_FIELDS["holders"])
    assert len(failures) == (cut >= len("torch.OutOfMemoryError: CUDA out of memory"))


@given(st.binary(max_size=4000))
def test_binary_garbage_ends_cleanly(garbage):
    reading = read(garbage)

    assert reading.bytes == len(garbage)


@given(size=st.integers(0, 1 << 45))
def test_the_bounds_of_a_printed_size_hold_the_size(size):
    text = as_pytorch_prints(size)
    figure = Figure.parse(text.replace(" ", ""))

    assert figure.printed == text
    assert figure.low_bytes <= size <= figure.high_bytes
    assert as_pytorch_prints(figure.bytes) == text or figure.bytes in (1024, 1 << 20, 1 << 30)


def as_pytorch_prints(size):
    """PyTorch's own way to print a size."""
    if size <= 1 << 10:
        return f"{size} bytes"
    for unit, power in (("KiB", 10), ("MiB", 20)):
        if size <= 1 << (power + 10):
            return f"{size / (1 << power):.2f} {unit}"
    return f"{size / (1 << 30):.2f} GiB"


def test_a_size_that_no_device_has_is_no_figure():
    figure = Figure.parse("17179869184.00GiB")

    assert (figure.bytes, figure.low_bytes, figure.high_bytes) == (None, None, None)
    assert "no figure" in figure.reason
    assert msgspec.to_builtins(figure)["printed"] == "17179869184.00 GiB"

"""The simulated card: PyTorch's CUDA build, unmodified, on a machine without a GPU.

Small C libraries (``src/``), written from the public headers, take the place of
NVIDIA's runtime, driver, cuBLAS, cuDNN, NCCL and NVML below the real PyTorch. They
are built once for the wheels of the workload's interpreter, and preloaded.

Real
    All of PyTorch and what builds on it: the C++ caching allocator with each of its
    backends, memory pools, CUDA graphs' private pools, snapshots, autograd, DDP,
    ``torchrun``, and its own out-of-memory errors. Which process holds how many
    bytes, the same on every side: ``cudaMemGetInfo``, NVML 1 and 2, messages.
Assumed
    What real libraries choose: see :meth:`SimulatedMachine.assumptions`, and
    ``tests/foresight`` for how well that agrees with peaks of real cards. cudaMalloc
    takes whole 2 MiB; pools of cudaMallocAsync grow by 32 MiB and never fragment;
    kernels are loaded all at once, at the first use of cuDNN, and with the context under
    ``CUDA_MODULE_LOADING=EAGER``.
Not real
    Kernels do nothing: device memory holds zeros or what was copied there. A number that
    is read back is what a copy has put there, and 0 where PyTorch's reductions or
    elementwise kernels would have written since, or where no small copy has. But ``all()`` is
    true, so that checks of what is valid pass; and up to 32 integers that a copy has brought
    are added up or put in a row, and the longest is found: lengths, by which programs make
    tensors. Shapes
    and branches that depend on computed values (``nonzero``, boolean masks, loops
    until convergence) go the way of zeros; ``invented_reads`` of the status counts
    them. Loops that wait for a true value never end without the setting ``true_every=16``;
    it is no default, because every 16th check such as ``if loss.isnan(): raise`` would come
    out true as well. For ``generate`` of Hugging Face the product needs no setting: its agent
    ends that loop at the maximum length (agent/simulated.py).
    All kernels cost the same time (``kernel_us``), none by default.
    NCCL: messages of up to 1 MiB are exchanged and reduced, of larger ones each rank
    sees its own part; send and receive move nothing. No CUDA IPC, no
    CUPTI. MIG: even shares only.

CPython before 3.14 may abort at exit ("terminate called without an active exception")
when one of autograd's threads still drops Python objects. With kernels that take no
time that is frequent, so such a thread is put to sleep here; real cards have it too.

::

    libraries = build(find_python(["python", "train.py"]))
    machine = SimulatedMachine.create(libraries, state, devices=[24 << 30])
    subprocess.run(["python", "train.py"], env=machine.environment())
"""

from gpumem_tui.simcard.build import Libraries, build, cache_folder
from gpumem_tui.simcard.compiler import Compiler, find_compiler
from gpumem_tui.simcard.interpreter import find_python
from gpumem_tui.simcard.launch import load_nvml
from gpumem_tui.simcard.machine import (
    Assumption,
    DeviceStatus,
    Holder,
    MachineStatus,
    SimulatedMachine,
    parse_value,
)

__all__ = [
    "Assumption",
    "Compiler",
    "DeviceStatus",
    "Holder",
    "Libraries",
    "MachineStatus",
    "SimulatedMachine",
    "build",
    "cache_folder",
    "find_compiler",
    "find_python",
    "load_nvml",
    "parse_value",
]

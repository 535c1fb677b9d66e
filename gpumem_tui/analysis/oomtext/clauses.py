"""The messages, clause by clause, over squeezed text (no white space, so no wrap can split anything).

A message is a head and then whatever known clauses follow it, in any order: old and
new layouts, optional clauses and truncated messages need no templates of their own.
A clause that is not there leaves its field None; a torn figure matches no clause.
"""

import re
from typing import NamedTuple

from gpumem_tui.analysis.oomtext.facts import Family, Holder
from gpumem_tui.analysis.oomtext.figures import NO_LIMIT, SIZE, Figure


def _clause(words: str) -> re.Pattern[str]:
    """A pattern from words as printed: ``<name>`` is a size, ``<#name>`` a number."""
    pattern = ""
    for part in re.split(r"(<#?\w+>)", words):
        if part.startswith("<#"):
            pattern += rf"(?P<{part[2:-1]}>\d{{1,10}})"
        elif part.startswith("<"):
            pattern += rf"(?P<{part[1:-1]}>{SIZE})"
        else:
            pattern += re.escape(part.replace(" ", ""))
    return re.compile(pattern)


_CLAUSES = tuple(
    _clause(words)
    for words in (
        # until 2.0, and the NPU's until today
        "Tried to allocate <requested> (GPU <#device>;",
        "Tried to allocate <requested> (NPU <#device>;",
        "<total> total capacity;",
        "<allocated> already allocated;",
        "<active> current active;",
        "<free> free;",
        "<allowed> allowed;",
        "<reserved> reserved in total by PyTorch)",
        "<cached> cached)",
        # from 2.1
        "Tried to allocate <requested>.",
        "GPU <#device> has a total capacty of <total> of which <free> is free.",
        "GPU <#device> has a total capacity of <total> of which <free> is free.",
        "GPU <#device> has a total capacity of <total>.",
        "Including non-PyTorch memory, this process has <own> memory in use.",
        "Process <#pid> has <used> memory in use.",
        "Of the allocated memory <allocated> is allocated by PyTorch,",
        "with <private_pools> allocated in private pools (e.g., CUDA Graphs),",
        "with <private_pools> allocated in private pools (e.g., HIP Graphs),",
        "and <idle> is reserved by PyTorch but unallocated.",
        # rejected in advance
        "Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit.",
        "Requested size: <requested>",
        # MPS
        "(MPS allocated: <allocated>,",
        "other allocations: <other_allocations>).",
        "other allocations: <other_allocations>,",
        "max allowed: <allowed>).",
        "Tried to allocate <requested> on shared pool.",
        "Tried to allocate <requested> on private pool.",
        # cudaMallocAsync
        "(out of memory)",
        "Currently allocated: <allocated>",
        "Requested: <requested>",
        "Device limit: <total>",
        "Free (according to CUDA): <free>",
        "PyTorch limit (set by user-supplied memory fraction): <allowed>",
        "Tried to allocate more than 1EB memory.",
        "Tried to allocate <requested>",  # cut short here
    )
)
_BETWEEN = re.compile(r"[\"'`*_\\|>]{1,4}")
"""What quoting may leave between two clauses."""

_HINTS = ("max_split_size_mb", "expandable_segments", "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "empty_cache")
_HINT_REACH = 260

Fields = dict[str, Figure | int | str | tuple[Holder, ...]]


class Match(NamedTuple):
    """One message found in squeezed text."""

    family: Family
    start: int
    end: int
    fields: Fields
    certain: bool = True


_SIZE_FIELDS = frozenset(
    ("requested", "total", "free", "allocated", "allowed", "reserved", "private_pools", "idle", "own")
) | {"other_allocations"}
_HEAD = re.compile(
    r"(?P<backend>CUDA|HIP|XPU|NPU)outofmemory[.!]?"
    r"|(?P<mps>MPS)backendoutofmemory"
    r"|Allocationondevice(?P<device>\d{1,4})wouldexceedallowedmemory\.?"
)
_NAMED = re.compile(r"(?:OutOfMemoryError|RuntimeError|AcceleratorError|Error)[:('\"\\]{1,4}$")


def allocator_messages(text: str) -> list[Match]:
    """Messages of PyTorch's device allocators, with every clause that follows each head."""
    found = []
    for head in _HEAD.finditer(text):
        fields, end = _clauses_after(text, head.end())
        family = Family.ALLOCATOR
        if head["mps"]:
            family, fields["backend"] = Family.MPS, "MPS"
        elif head["device"] is not None:
            family, fields["backend"], fields["device"] = Family.ASYNC, "CUDA", int(head["device"])
        else:
            fields["backend"] = head["backend"]
        rest = text[head.end() : end]
        if "preemptivelyrejected" in rest:
            family = Family.REJECTED
        elif "morethan1EB" in rest:
            family = Family.EXABYTE
        elif end == head.end() and not (family is Family.ASYNC or _named(text, head.start())):
            continue  # somebody talks of it
        tail = text[end : end + _HINT_REACH]
        nearer = _HEAD.search(tail)
        tail = tail[: nearer.start()] if nearer else tail
        hint = next((name for name in _HINTS if name in tail), None)
        if hint is not None:
            fields["hint"] = hint
        found.append(Match(family, head.start(), end, fields))
    return found


def _named(text: str, start: int) -> bool:
    return _NAMED.search(text, max(0, start - 40), start) is not None


def _clauses_after(text: str, at: int) -> tuple[Fields, int]:
    fields: Fields = {}
    holders: list[Holder] = []
    last = 0
    while True:
        found = _next_clause(text, at, last)
        if found is None and (between := _BETWEEN.match(text, at)):
            found = _next_clause(text, between.end(), last)
        if found is None:
            break
        last, match = found
        at = match.end()
        _take(match.groupdict(), fields, holders)
    if holders:
        fields["holders"] = tuple(holders)
    return fields, at


def _next_clause(text: str, at: int, last: int) -> tuple[int, re.Match[str]] | None:
    """The clause at this place; those that usually follow the last one are tried first."""
    for index in (*range(last, len(_CLAUSES)), *range(last)):
        if match := _CLAUSES[index].match(text, at):
            return index, match
    return None


def _take(groups: dict[str, str], fields: Fields, holders: list[Holder]) -> None:
    """Add a clause's figures; the first of a name stands."""
    if "pid" in groups:
        holders.append(Holder(int(groups["pid"]), Figure.parse(groups["used"], zero_is_told=False)))
    if "device" in groups:
        fields.setdefault("device", int(groups["device"]))
    for name in _SIZE_FIELDS & groups.keys():
        sentinel = {"sentinel": NO_LIMIT} if name == "allowed" else {}
        fields.setdefault(name, Figure.parse(groups[name], zero_is_told=name != "own", **sentinel))
    if "cached" in groups:
        # the layout that says "cached" (until 1.3) prints it without the allocated share
        fields.setdefault("idle", Figure.parse(groups["cached"]))


_OUTSIDE: tuple[tuple[Family, bool, re.Pattern[str]], ...] = (
    (Family.NVML_ASSERT, True, re.compile(r"NVML_SUCCESS==rINTERNALASSERTFAILED")),
    (Family.DRIVER, True, re.compile(
        r"(?P<backend>CUDA|HIP)(?:driver|runtime)?error:outofmemory"
        r"|TritonError\[(?P<triton>CUDA|HIP)\]:outofmemory"
        r"|(?P<name>CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)"
        r"|(?:allocating(?P<size>" + SIZE + r")ondevice(?P<device>\d{1,4}):)?"
        r"cu(?:da|Mem)(?:Malloc|Alloc)\w{0,16}failed:outofmemory")),
    (Family.LIBRARY, True, re.compile(r"(?P<call>(?:(?:CU|HIP)BLAS|CUDNN)_STATUS_ALLOC_FAILED)")),
    (Family.LIBRARY, False, re.compile(
        r"(?P<call>(?:(?:CU|HIP)BLAS|CUDNN)_STATUS_NOT_INITIALIZED"
        r"|UnabletofindavalidcuDNNalgorithmtorunconvolution"
        r"|(?:GET|FIND)wasunabletofindanenginetoexecutethiscomputation)")),
    (Family.NCCL, True, re.compile(
        r"(?:NCCLWARN)?Cudafailure(?:\[?2\]?)?:?'?outofmemory|FailedtoCUDAcalloc(?:async)?(?P<bytes>\d{1,20})bytes")),
    (Family.NCCL, False, re.compile(r"unhandledcudaerror|ncclUnhandledCudaError")),
    (Family.HOST_ALLOCATION, True, re.compile(
        r"std::bad_alloc(?!:(?:out_of_memory:)?CUDAerror)"
        r"|DefaultCPUAllocator:(?:can'tallocatememory|notenoughmemory):youtriedtoallocate(?P<bytes>\d{1,20})bytes"
        r"|Unabletoallocate(?P<size>" + SIZE + r")foranarray|\[Errno12\]Cannotallocatememory")),
    (Family.SHARED_MEMORY, True, re.compile(
        r"DataLoaderworker\(pid(?:\(s\))?(?P<pid>\d{1,10})\)iskilledbysignal:Buserror"
        r"|buserrorencounteredinworker")),
    (Family.HOST_KILL, False, re.compile(
        r"DataLoaderworker\(pid(?:\(s\))?(?P<pid>\d{1,10})\)iskilledbysignal:Killed")),
    (Family.HOST_KILL, True, re.compile(
        r"[Oo]utofmemory:Kill(?:ed)?process(?P<pid>\d{1,10})|oom-kill:constraint=\w+")),
    (Family.HOST_KILL, True, re.compile(
        r"oom[-_]killevents?(?:\(s\))?in(?:StepId=|step)(?P<call>\d{1,12}\.(?:batch|extern|interactive|\d{1,6}))"
        r"|tasks?(?:havebeen|been)OOMKilled|task\d{1,6}:OutOfMemory|OOMKilled")),
)  # fmt: skip
_CALLS = {
    "UnabletofindavalidcuDNNalgorithmtorunconvolution": "cuDNN found no algorithm",
    "GETwasunabletofindanenginetoexecutethiscomputation": "cuDNN found no engine",
    "FINDwasunabletofindanenginetoexecutethiscomputation": "cuDNN found no engine",
}
_CALL = re.compile(r"whencalling[`'\"]?([A-Za-z_]\w{2,60})\(")


def outside_messages(text: str) -> list[Match]:
    """Messages from outside the device allocator: driver, libraries, NCCL, host."""
    found = []
    for family, certain, pattern in _OUTSIDE:
        for match in pattern.finditer(text):
            groups = {name: value for name, value in match.groupdict().items() if value is not None}
            fields: Fields = {}
            end = match.end()
            if "backend" in groups or "triton" in groups:
                fields["backend"] = groups.get("backend") or groups["triton"]
            if pid := groups.get("pid"):
                fields["pid"] = int(pid)
            if "bytes" in groups:
                fields["requested"] = Figure.exact(int(groups["bytes"]))
            if "device" in groups:
                fields["device"] = int(groups["device"])
            if "size" in groups:
                fields["requested"] = Figure.parse(groups["size"])
            if "call" in groups:
                fields["call"] = _CALLS.get(groups["call"], groups["call"])
                if family is Family.LIBRARY and (call := _CALL.match(text, match.end())):
                    fields["call"] = f"{groups['call']} in {call[1]}"
                    end = call.end()
            found.append(Match(family, match.start(), end, fields, certain))
    return found


PRESSURE = re.compile(
    r"memory(?:allocation|mapping)failedwithOOMondevice(?P<device>\d{1,4})whiletryingto(?:allocate|map)"
    r"(?P<bytes>\d{1,20})bytes\(free:(?P<free>\d{1,20}),total:(?P<total>\d{1,20})\)"
)
"""A failed driver allocation (2.13 and later). The retry may succeed, so it is no failure by itself."""

NO_PROCESS_LIST = re.compile(r"omittingper-processmemoryinfo")
"""2.14: NVML did not answer, so the message lists no processes."""

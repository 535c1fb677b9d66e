"""Messages of what shares the card with PyTorch: JAX and TensorFlow, ONNX Runtime, TensorRT, Paddle, servers.

Over squeezed text, as ``clauses``. What an allocator says that is not a failure by its own
word is none. A number that ends its message has nothing behind it that would tell a torn
one: it goes on into the next line only where that line holds nothing else.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from gpumem_tui.analysis.oomtext.clauses import Fields, Match
from gpumem_tui.analysis.oomtext.facts import Family
from gpumem_tui.analysis.oomtext.figures import SIZE, Figure

NumberEnd = Callable[[int, int], int]
"""Where a number really ends that seems to reach from one offset to another."""

_N = r"\d{1,20}"
_HUMAN = rf"(?:{SIZE}|\d{{1,10}}(?:\.\d{{1,6}})?B)"
_TYPES = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes an element of TensorFlow's types."""


class _Said(NamedTuple):
    """One way to say it."""

    family: Family
    call: str
    pattern: re.Pattern[str]
    certain: bool = True


_XLA = "JAX or TensorFlow"
_BFC = r"Allocator\((?:GPU_(?P<device>\d{1,4})_bfc|\w{1,40})\)ranoutofmemorytryingtoallocate"

_SAID = (
    _Said(Family.XLA, _XLA, re.compile(
        rf"Outofmemorywhiletryingtoallocate(?:(?P<bytes_requested>{_N})bytes|(?P<size_requested>{SIZE}))"
        rf"|(?:RESOURCE_EXHAUSTED|Resourceexhausted):Outofmemoryallocating(?P<bytes_requested_>{_N})bytes")),
    _Said(Family.XLA, _XLA, re.compile(
        rf"Failedtoallocaterequestfor(?P<size_requested>{_HUMAN})\((?P<digits_requested>{_N})B\)"
        r"(?:ondeviceordinal(?P<tail_device>\d{1,4}))?")),
    _Said(Family.XLA, _XLA, re.compile(
        rf"{_BFC}(?P<size_requested>{_HUMAN})(?:\(roundedto(?P<digits_requested>{_N})\))?"
        r"(?!(?:withfreed_by_count=\d{1,9})?\.Thecallerindicates)(?=[.(rC]|$)")),
    _Said(Family.XLA, "TensorFlow", re.compile(
        r"OOMwhenallocatingtensorwithshape(?P<shape>\[[\d,]{0,200}\])"
        rf"(?:andtype(?P<type>{'|'.join(_TYPES)})(?![a-z0-9]*\d))?"
        r"(?:on/job:[\w/:-]{1,120}?device:(?P<place>GPU|CPU):(?P<device>\d{1,4})(?=byallocator))?")),
    _Said(Family.XLA, "TensorFlow", re.compile(
        r"(?:RESOURCE_EXHAUSTED|ResourceExhaustedError|Resourceexhausted):failedtoallocatememory")),
    _Said(Family.XLA, _XLA, re.compile(
        rf"cuMemAllocAsyncfailedtoallocate(?P<bytes_requested>{_N})bytes:[\w:]{{0,80}}outofmemory"
        rf"(?:ReportedbyCUDA:Freememory/Totalmemory:(?P<digits_free>{_N})/(?P<tail_digits_total>{_N}))?")),
    _Said(Family.XLA, "the pool that TensorFlow or JAX makes at its start", re.compile(
        rf"failedtoallocate[\d.]{{1,9}}[KMGT](?:i?B)?\((?P<bytes_requested>{_N})bytes\)fromdevice:"
        r"[\w:]{0,30}CUDA_ERROR_OUT_OF_MEMORY(?::outofmemory)?"), certain=False),
    _Said(Family.ONNX, "ONNX Runtime", re.compile(
        rf"Failedtoallocatememoryforrequestedbuffer(?:ofsize(?P<tail_digits_requested>{_N}))?")),
    _Said(Family.ONNX, "ONNX Runtime", re.compile(
        r"CUDAfailure(?:2:)?outofmemory;GPU=(?P<device>\d{1,4});")),
    _Said(Family.TENSORRT, "TensorRT", re.compile(
        rf"Requestedamountof(?:GPU)?memory\((?P<bytes_requested>{_N})bytes\)couldnotbeallocated")),
    _Said(Family.TENSORRT, "TensorRT", re.compile(
        rf"ErrorCode(?:2:)?OutOfMemory(?:\((?:nofurtherinformation|Requestedsizewas(?P<bytes_requested>{_N})bytes\.?)\))?"
        r"|ErrorCode(?:1:)?CudaRuntime\(outofmemory\)|CudaErrorin[\w:]{1,80}:(?:2)?\(outofmemory\)")),
    _Said(Family.TENSORRT, "a tactic that TensorRT's builder skipped", re.compile(
        r"Skippingtactic(?:0x[0-9a-f]{1,16}|\d{1,9})duetoinsufficientmemoryonrequestedsizeof"
        rf"(?P<digits_requested>{_N})detected"), certain=False),
    _Said(Family.PADDLE, "PaddlePaddle", re.compile(
        rf"OutofmemoryerroronGPU(?P<device>\d{{1,4}})\.[Cc]annotallocate(?P<size_requested>{_HUMAN})(?:GPU)?memory"
        rf"(?:onGPU\d{{1,4}})?,(?:(?P<size_allocated>{_HUMAN})memoryhasbeenallocatedand)?"
        rf"availablememoryis(?:only)?(?P<size_free>{_HUMAN})")),
    _Said(Family.GGML, "llama.cpp", re.compile(
        rf"ggml_\w{{1,60}}:allocating(?P<size_requested>{SIZE})ondevice(?:(?P<device>\d{{1,4}}):)?"
        r"(?:cuda|hip|musa)Mallocfailed:outofmemory"
        rf"|ggml_vulkan:[Dd]evicememoryallocationofsize(?P<digits_requested>{_N})failed")),
    _Said(Family.CUPY, "CuPy", re.compile(
        r"Outofmemoryallocating(?P<grouped_requested>\d{1,3}(?:,\d{3}){0,5})bytes"
        r"\(allocatedsofar:(?P<grouped_allocated>\d{1,3}(?:,\d{3}){0,5})bytes"
        r"(?:,limitsetto:(?P<grouped_allowed>\d{1,3}(?:,\d{3}){0,5})bytes)?\)"
        rf"|outofmemorytoallocate(?P<bytes_requested>{_N})bytes\(total(?P<bytes_allocated>{_N})bytes"
        rf"(?:,limitsetto(?P<bytes_allowed>{_N})bytes)?\)")),
    _Said(Family.SERVER, "vLLM", re.compile(
        r"Freememoryondevice(?:[a-z]{2,5}:(?P<device>\d{1,4}))?"
        r"\((?P<gib_free>\d[\d.]{0,9})/(?P<gib_total>\d[\d.]{0,9})GiB\)onstartupislessthandesired"
        r"GPUmemoryutilization\((?P<share>[\d.]{1,8}),(?P<gib_requested>\d[\d.]{0,9})GiB\)")),
    _Said(Family.SERVER, "vLLM", re.compile(
        r"Toserveatleastonerequestwiththemodel'?s?'?smaxseqlen\((?P<longest>\d{1,9})\),"
        r"\((?P<gib_requested>\d[\d.]{0,9})GiBKVcacheisneeded,whichislargerthantheavailableKVcachememory"
        r"\((?P<gib_room>\d[\d.]{0,9})GiB\)"
        r"(?:\.Basedontheavailablememory,theestimatedmaximummodellengthis(?P<fits>\d{1,9})\.)?")),
    _Said(Family.SERVER, "vLLM", re.compile(
        r"[Tt]hemodel'smaxseqlen\((?P<longest>\d{1,9})\)islargerthanthemaximumnumberoftokensthatcanbestored"
        r"inKVcache\((?P<fits>\d{1,9})\)")),
    _Said(Family.SERVER, "vLLM", re.compile(r"Noavailablememoryforthecacheblocks")),
    _Said(Family.SERVER, "SGLang", re.compile(
        r"Notenoughmemory\.Pleasetrytoincrease--mem-fraction-static")),
    _Said(Family.SERVER, "TGI", re.compile(r"Notenoughmemorytohandle(?P<longest>\d{1,9})prefilltokens")),
)  # fmt: skip

POOL = re.compile(rf"Limit:(?P<limit>{_N})InUse:(?P<used>{_N})MaxInUse:")
"""What TensorFlow's allocator tells of its pool after it ran out: its cap, and what is live in it."""
REGION = re.compile(rf"total_region_allocated_bytes_:(?P<held>{_N})memory_limit_:(?P<limit>{_N})available")
"""What its pool has got from the driver, beside its cap."""


def framework_messages(text: str, number_end: NumberEnd) -> list[Match]:
    """Messages of other frameworks and of servers that refuse to start."""
    found = []
    for family, call, pattern, certain in _SAID:
        for match in pattern.finditer(text):
            groups = {name: value for name, value in match.groupdict().items() if value is not None}
            end = match.end()
            for name in [name for name in groups if name.startswith("tail_")]:
                start, reach = match.span(name)
                cut = number_end(start, reach)
                groups[name.removeprefix("tail_")] = text[start:cut]
                end = min(end, cut) if reach == match.end() else end
            fields: Fields = {"call": call, **_numbers(groups), **_figures(groups)}
            if groups.get("place") == "CPU":
                host = {name: fields[name] for name in ("requested",) if name in fields}
                found.append(Match(Family.HOST_ALLOCATION, match.start(), end, host))
                continue
            found.append(Match(family, match.start(), end, fields, certain))
    return found


def pools(text: str) -> list[Match]:
    """What an allocator tells of its pool, wherever that stands."""
    found = []
    for pool in POOL.finditer(text):
        fields: Fields = {"allowed": _digits(pool["limit"]), "allocated": _digits(pool["used"])}
        found.append(Match(Family.XLA, pool.start(), pool.end(), fields))
    for region in REGION.finditer(text):
        fields = {"reserved": _digits(region["held"]), "allowed": _digits(region["limit"])}
        found.append(Match(Family.XLA, region.start(), region.end(), fields))
    return found


def _numbers(groups: dict[str, str]) -> Fields:
    """What is no size."""
    found: Fields = {}
    if "device" in groups:
        found["device"] = int(groups["device"])
    if "share" in groups:
        found["setting"] = f"gpu_memory_utilization {groups['share']}"
    if "longest" in groups:
        found["longest"] = int(groups["longest"])
    if "fits" in groups:
        found["fits"] = int(groups["fits"])
    return found


def _figures(groups: dict[str, str]) -> Fields:
    """Sizes: the part of a group's name before its field tells how it is printed."""
    found: Fields = {}
    for name, value in groups.items():
        form, _, field = name.rstrip("_").partition("_")
        if form not in _FORMS:
            continue
        figure, known = _FORMS[form](value), found.get(field)
        if isinstance(known, Figure):  # rounded for people, and exact beside it
            figure = msgspec.structs.replace(figure, printed=known.printed)
        found[field] = figure
    if "shape" in groups and groups.get("type") in _TYPES:
        sides = [int(side) for side in groups["shape"].strip("[]").split(",") if side]
        size = math.prod(sides) * _TYPES[groups["type"]]
        found["requested"] = Figure(f"shape{groups['shape']} and type {groups['type']}", size, size, size)
    return found


def _digits(digits: str) -> Figure:
    """A number of bytes that is printed without a unit."""
    return Figure(digits, int(digits), int(digits), int(digits))


def _grouped(digits: str) -> Figure:
    """``9,663,676,416``."""
    return msgspec.structs.replace(_digits(digits.replace(",", "")), printed=f"{digits} bytes")


def _size(squeezed: str) -> Figure:
    """A size; TensorFlow, XLA and Paddle print small ones in B."""
    if re.fullmatch(SIZE, squeezed):
        return Figure.parse(squeezed)
    return msgspec.structs.replace(_digits(str(round(float(squeezed[:-1])))), printed=squeezed)


def _gib(number: str) -> Figure:
    """A number of GiB whose unit stands elsewhere."""
    return msgspec.structs.replace(Figure.parse(f"{number}GiB"), printed=number)


_FORMS: dict[str, Callable[[str], Figure]] = {
    "bytes": lambda digits: Figure.exact(int(digits)),
    "digits": _digits,
    "grouped": _grouped,
    "size": _size,
    "gib": _gib,
}
"""By how a figure is printed: ``12 bytes``, ``12``, ``1,200 bytes``, ``1.50 GiB`` or B, ``1.5`` of GiB."""

"""What model files on disk declare: ``config.json``, safetensors headers, the index of a sharded checkpoint.

Reads headers only, never a tensor, and loads nothing. A header is believed after it
was checked: sizes of tensors follow from format and shape, tensors fill the file
without holes or overlaps, and the file is as long as its header says.

Refuses: downloads, pickles, files that are not regular. Every error is a :class:`BadInput`.
"""

import json
import math
import os
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpumem_tui.errors import BadInput

BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""Formats of safetensors → bits an element."""

MOST_HEADER_BYTES = 100_000_000
"""The format's own limit."""
_MOST_JSON_BYTES = 100_000_000
_MOST_DIMENSIONS = 64
"""As many as a tensor of PyTorch has."""

_INDEX_ENDING = ".safetensors.index.json"


class StoredTensor(NamedTuple):
    """One tensor as its header declares it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bits: int
    """An element."""


class Declared(NamedTuple):
    """What a sharded checkpoint's index says of shards that are not all here."""

    bytes: int
    parameters: int | None
    missing: int
    """Shards that are not here."""


class ModelFiles(NamedTuple):
    """What was found."""

    config: dict[str, Any] | None
    config_path: str | None
    tensors: tuple[StoredTensor, ...] | None
    """None where there is no safetensors file, or where shards are missing."""
    tensors_path: str | None
    declared: Declared | None
    notes: tuple[str, ...] = ()


def read_model(words: Sequence[str]) -> ModelFiles:
    """Read what a command line names: files, or one model's directory. Raises :class:`BadInput`."""
    paths = [path for word in words for path in _expand(Path(word))]
    if len({path.resolve() for path in paths}) < len(paths):
        raise BadInput("the same model file is named twice")
    configs = [path for path in paths if path.suffix == ".json" and not path.name.endswith(_INDEX_ENDING)]
    indexes = [path for path in paths if path.name.endswith(_INDEX_ENDING)]
    files = [path for path in paths if path.suffix == ".safetensors"]
    others = set(paths) - {*configs, *indexes, *files}
    if others:
        raise BadInput(
            f"{min(others)}: only config.json, .safetensors and .safetensors.index.json files are read"
        )
    if len(configs) > 1:
        raise BadInput(f"{configs[0]} and {configs[1]}: give one config.json")
    if len(indexes) > 1 or (indexes and files):
        raise BadInput(f"{indexes[0]}: give an index alone, it names its shards itself")
    config = read_json_object(configs[0]) if configs else None
    config_path = str(configs[0]) if configs else None
    if indexes:
        tensors, declared, notes = _read_index(indexes[0])
        return ModelFiles(config, config_path, tensors, str(indexes[0]), declared, notes)
    if files:
        found = read_headers(files)
        where = str(files[0]) if len(files) == 1 else f"{len(files)} safetensors files"
        return ModelFiles(config, config_path, found, where, None)
    return ModelFiles(config, config_path, None, None, None)


def _expand(path: Path) -> list[Path]:
    """A model's directory as the files that a loader would take; anything else as it is."""
    try:
        if not path.exists():
            hint = "; nothing is downloaded, give a path on this machine" if "/" in str(path) else ""
            raise BadInput(f"{path}: no such file or directory{hint}")
        if not path.is_dir():
            return [path]
        names = sorted(os.listdir(path))  # noqa: PTH208  names, not paths
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: {_why(error)}") from None
    if path.suffix in (".json", ".safetensors"):
        raise BadInput(f"{path} is a directory, not a file")
    config = [path / "config.json"] if "config.json" in names else []
    indexes = [name for name in names if name.endswith(_INDEX_ENDING)]
    files = [name for name in names if name.endswith(".safetensors")]
    chosen = next((n for n in ("model" + _INDEX_ENDING, "model.safetensors") if n in names), None)
    if chosen is None:
        only = indexes or files
        if len(only) > 1:
            raise BadInput(f"{path} holds {_shown(only[0])}, {_shown(only[1])}…: name the files of one model")
        chosen = only[0] if only else None
    if not config and chosen is None:
        raise BadInput(f"{path} holds neither config.json nor a safetensors file")
    return [*config, *([path / chosen] if chosen else [])]


def _open(path: Path) -> tuple[Any, int]:
    """The open file and its size. Raises :class:`BadInput` for all but regular, readable files."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise BadInput(f"{path} is a directory, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{path} is not a regular file")
        return path.open("rb"), status.st_size
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: {_why(error)}") from None


def _why(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises :class:`BadInput`."""
    file, size = _open(path)
    with file:
        if size > _MOST_JSON_BYTES:
            raise BadInput(f"{path} is too large for a config.json or an index ({size:,} bytes)")
        return _object(_read(file, size, path), path, "file")


def _read(file: Any, size: int, path: Path) -> bytes:
    try:
        data: bytes = file.read(size)
    except OSError as error:
        raise BadInput(f"{path}: {_why(error)}") from None
    return data


def _object(data: bytes, path: Path, what: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key occurs twice")
        return found

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    try:
        value = json.loads(data.decode(), object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        if data.startswith(b"version https://git-lfs"):
            raise BadInput(
                f"{path} is a Git LFS pointer, not the file; fetch it with: git lfs pull"
            ) from None
        why = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error) or "nested too deeply"
        raise BadInput(f"{path}: the {what} is not valid JSON ({why})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: the {what} is not a JSON object")
    return value


def read_headers(paths: Sequence[Path]) -> tuple[StoredTensor, ...]:
    """The tensors of one or several safetensors files. Raises :class:`BadInput`."""
    found: dict[str, StoredTensor] = {}
    for path in paths:
        for tensor in read_header(path):
            if tensor.name in found:
                raise BadInput(f"{path}: tensor {_shown(tensor.name)} is in another of the files as well")
            found[tensor.name] = tensor
    return tuple(found.values())


def read_header(path: Path) -> list[StoredTensor]:
    """The tensors that one safetensors file declares, checked. Raises :class:`BadInput`."""
    file, size = _open(path)
    with file:
        start = _read(file, 8, path)
        if start == b"version ":
            raise BadInput(f"{path} is a Git LFS pointer, not the file; fetch it with: git lfs pull")
        if len(start) < 8:
            raise BadInput(f"{path} is truncated: {size} bytes hold no safetensors header")
        (length,) = struct.unpack("<Q", start)
        if length > MOST_HEADER_BYTES:
            raise BadInput(f"{path} is no safetensors file: a header of {length:,} bytes")
        if 8 + length > size:
            raise BadInput(f"{path} is truncated inside its header ({8 + length:,} bytes, {size:,} are here)")
        header = _object(_read(file, length, path), path, "header")
    header.pop("__metadata__", None)
    tensors, spans = [], []
    for name, entry in header.items():
        tensor, span = _tensor(path, name, entry)
        tensors.append(tensor)
        spans.append((*span, name))
    end = 0
    for first, last, name in sorted(spans):
        if first != end:
            problem = "overlaps another" if first < end else "follows a hole"
            raise BadInput(f"{path}: the header lies: tensor {_shown(name)} {problem}")
        end = last
    if 8 + length + end != size:
        word = "is truncated" if size < 8 + length + end else "is longer than its header says"
        raise BadInput(f"{path} {word}: the header declares {8 + length + end:,} bytes, {size:,} are here")
    return tensors


def _tensor(path: Path, name: str, entry: Any) -> tuple[StoredTensor, tuple[int, int]]:
    """One entry of a header and where its bytes lie."""
    lacking = [
        key for key in ("dtype", "shape", "data_offsets") if not isinstance(entry, dict) or key not in entry
    ]
    if lacking:
        raise BadInput(f"{path}: tensor {_shown(name)} has no {lacking[0]}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise BadInput(f"{path}: tensor {_shown(name)} has an unknown format {_shown(str(dtype))!r}")
    if not _sizes(shape) or len(shape) > _MOST_DIMENSIONS:
        raise BadInput(f"{path}: tensor {_shown(name)} has no valid shape")
    if not _sizes(offsets) or len(offsets) != 2:
        raise BadInput(f"{path}: tensor {_shown(name)} has no valid data_offsets")
    bits = math.prod(shape) * BITS[dtype]
    if bits % 8 or bits // 8 != offsets[1] - offsets[0]:
        raise BadInput(
            f"{path}: the header lies: tensor {_shown(name)} ({dtype}, shape {_shown(str(shape))}) "
            f"cannot take {offsets[1] - offsets[0]:,} bytes"
        )
    return StoredTensor(name, dtype, tuple(shape), BITS[dtype]), (offsets[0], offsets[1])


def _shown(text: str) -> str:
    """A name from a file, as an error line bears it: printable and short."""
    words = "".join(letter if letter.isprintable() else "�" for letter in text)
    return words if len(words) <= 80 else words[:79] + "…"


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _read_index(path: Path) -> tuple[tuple[StoredTensor, ...] | None, Declared | None, tuple[str, ...]]:
    index = read_json_object(path)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BadInput(f"{path} has no weight_map: it is no safetensors index")
    names = sorted({name for name in weight_map.values() if isinstance(name, str)})
    if any(not isinstance(name, str) or Path(name).name != name for name in weight_map.values()):
        raise BadInput(f"{path}: weight_map names something that is not a file beside it")
    metadata = index.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    count = metadata.get("total_parameters") if isinstance(metadata, dict) else None
    absent = [name for name in names if not path.with_name(name).exists()]
    if absent:
        if not _sizes([size]) or not size:
            raise BadInput(
                f"{path}: shard {_shown(absent[0])} is not here, and the index declares no total_size"
            )
        parameters = count if _sizes([count]) and count else None
        return None, Declared(size, parameters, len(absent)), ()
    tensors = read_headers([path.with_name(name) for name in names])
    held = {tensor.name for tensor in tensors}
    lost = next((name for name in weight_map if name not in held), None)
    if lost is not None:
        raise BadInput(f"{path}: tensor {_shown(lost)} is in none of the shards that are here")
    notes = []
    actual = sum(math.prod(t.shape) * t.bits // 8 for t in tensors)
    if size is not None and size != actual:
        notes.append(
            f"the index declares total_size {size}, the headers of its shards {actual}: the headers count"
        )
    return tensors, None, tuple(notes)

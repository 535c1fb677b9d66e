"""``explain``: failures of memory in a message, a log or a recording, and the map of a memory snapshot.

The JSON (``--json``) is one object: ``schema`` (1), ``source``, ``lines``, ``bytes``,
``failures``, ``failures_not_kept``, ``pressure``, ``aftermath``, ``root_causes``,
``planning``, ``notes``. A failure has the fields of ``OomFailure`` and ``findings``; a size is null
where the text does not print it, otherwise an object with ``printed``, ``bytes``,
``low_bytes``, ``high_bytes`` (null with a ``reason`` where the text prints a stand-in).
Of a recording (a directory) it is ``schema``, ``source``, ``run`` and ``failures`` as in
``report --json``; of a memory snapshot (a pickle) ``schema``, ``source``, ``devices`` (each
with ``pools`` and ``segments``), ``failed`` and ``settings``. Fields are only ever added.
"""

import argparse
import sys
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpumem_tui.analysis.findings import Finding
    from gpumem_tui.analysis.oomtext import Figure, OomFailure, Reading
    from gpumem_tui.journal.rundir import RunDirectory

SCHEMA = 1
_SHOWN = 10
"""Failures printed in full; the JSON has all."""

_EPILOG = """\
Reads messages of PyTorch 1.x to 2.x for CUDA, HIP, XPU, NPU and MPS, of cuBLAS, cuDNN,
NCCL, Slurm, Kubernetes, the kernel and DataLoader workers, of JAX, TensorFlow, ONNX
Runtime, TensorRT, PaddlePaddle, CuPy and llama.cpp, and of vLLM, SGLang and TGI that
refuse to start, with whatever launchers, terminals and CI put around them. A line that
only says that the driver was asked twice (pressure) is no failure.

A run (its directory, or its name where there is no file of that name) gives the
failures of that recording, from exact figures. A pickle of
torch.cuda.memory._dump_snapshot gives the pools and the map of each device; it is read
as plain data, and refused where it is more.

exit codes: 0 a failure was found; 1 none was found; 2 usage; 4 the file cannot be read
(a snapshot that can be read ends with 0)"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a log or a pasted message (- reads standard input), a run, or a memory snapshot",
    )
    parser.add_argument("--json", action="store_true", help="stable schema, raw bytes with their bounds")
    parser.add_argument("--all", action="store_true", help=f"print more than {_SHOWN} failures in full")
    parser.add_argument("--ascii", action="store_true", help="ASCII only")


def run(arguments: argparse.Namespace) -> int:
    """Print what the log says; 0 where it tells of a failure, else 1."""
    from gpumem_tui.analysis.oomtext import Scanner
    from gpumem_tui.sources import logs, snapshots

    if (recorded := _run_of(arguments.file)) is not None:
        return _recording(recorded, arguments)
    if arguments.file != "-" and snapshots.is_pickle(arguments.file):
        return _snapshot(arguments)
    scanner = Scanner()
    for block in logs.blocks(arguments.file):
        scanner.feed(block)
    reading = scanner.finish()
    name = "standard input" if arguments.file == "-" else arguments.file
    if arguments.json:
        _write_json(reading, name)
    else:
        _write_text(reading, name, everything=arguments.all, ascii_only=arguments.ascii)
    return 0 if reading.failures else 1


def _run_of(name: str) -> "RunDirectory | None":
    """The run of that path, else of that name; None for a file, and where there is neither."""
    from pathlib import Path

    from gpumem_tui.errors import RunNotFound
    from gpumem_tui.journal import rundir

    path = Path(name)
    if name == "-" or (path.exists() and not (path / "run.json").exists()):
        return None
    try:
        return rundir.find(name)
    except RunNotFound:
        return None


def _recording(recorded: "RunDirectory", arguments: argparse.Namespace) -> int:
    """Print the failures of a run; 0 where it has any, else 1."""
    from gpumem_tui.session import Recording
    from gpumem_tui.views import jsonview
    from gpumem_tui.views.failuretext import render_failures

    state = Recording(recorded).read()
    if arguments.json:
        told = jsonview.document(state)
        document = {"schema": SCHEMA, "source": _utf8(arguments.file), "run": told["run"]}
        _print_json({**document, "failures": told["failures"]})
    else:
        cells, ascii_only = _terminal(arguments.ascii)
        most = None if arguments.all else _SHOWN
        print(render_failures(state, cells=cells, ascii=ascii_only, most=most), end="")
    return 0 if state.failures else 1


def _snapshot(arguments: argparse.Namespace) -> int:
    """Print the pools and the map of a memory snapshot."""
    import msgspec

    from gpumem_tui.analysis.fragmentation import pools_of
    from gpumem_tui.analysis.snapshot import read_snapshot
    from gpumem_tui.errors import BadInput
    from gpumem_tui.sources.snapshots import UnreadableSnapshot, read_plain
    from gpumem_tui.views.failuretext import render_snapshot

    try:
        snapshot = read_snapshot(read_plain(arguments.file))
    except BadInput as error:
        raise UnreadableSnapshot(f"{_utf8(arguments.file)}: {error}") from None
    if arguments.json:
        devices = [
            {
                "device": device,
                "pools": msgspec.to_builtins(pools_of(snapshot.of(device))),
                "segments": msgspec.to_builtins(snapshot.of(device)),
            }
            for device in snapshot.devices()
        ]
        document = {"schema": SCHEMA, "source": _utf8(arguments.file), "devices": devices}
        failed = msgspec.to_builtins(snapshot.failed)
        _print_json({**document, "failed": failed, "settings": snapshot.settings})
    else:
        cells, ascii_only = _terminal(arguments.ascii)
        print(render_snapshot(snapshot, _utf8(arguments.file), cells=cells, ascii=ascii_only), end="")
    return 0


def _utf8(name: str) -> str:
    """A name of bytes that are no UTF-8 comes as surrogates, which neither JSON nor a terminal can carry."""
    return name.encode("utf-8", "replace").decode()


def _print_json(document: dict[str, Any]) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")


def _terminal(ascii_only: bool) -> tuple[int, bool]:
    """Width of the text, and whether it is ASCII."""
    import shutil

    ascii_only |= "utf" not in (sys.stdout.encoding or "").lower()
    return max(40, min(100, shutil.get_terminal_size((80, 24)).columns)), ascii_only


def _write_json(reading: "Reading", name: str) -> None:
    import msgspec

    from gpumem_tui.analysis.findings import diagnose
    from gpumem_tui.analysis.oomtext import pressure_situation, situation

    document: dict[str, Any] = {"schema": SCHEMA, "source": name, **msgspec.to_builtins(reading)}
    for failure, entry in zip(reading.failures, document["failures"], strict=True):
        entry["findings"] = msgspec.to_builtins(diagnose(situation(failure)))
    for pressure, entry in zip(reading.pressure, document["pressure"], strict=True):
        entry["findings"] = msgspec.to_builtins(diagnose(pressure_situation(pressure)))
    document["source"] = _utf8(name)
    _print_json(document)


def _write_text(reading: "Reading", name: str, *, everything: bool, ascii_only: bool) -> None:
    from gpumem_tui.views.text import to_ascii

    cells, ascii_only = _terminal(ascii_only)
    for line in _lines(reading, name, cells, everything=everything):
        print(to_ascii(line) if ascii_only else line)


def _lines(reading: "Reading", name: str, cells: int, *, everything: bool) -> Iterable[str]:
    from gpumem_tui.analysis.findings import diagnose
    from gpumem_tui.analysis.oomtext import pressure_situation, situation
    from gpumem_tui.analysis.oomtext.clean import readable

    count = len(reading.failures) + reading.failures_not_kept
    head = f"{count or 'no'} out-of-memory failure{'' if count == 1 else 's'}"
    place = f"{readable(_utf8(name))}, {_count(reading.lines, 'line')}"
    yield from _wrap(f"{head} in {place}", cells)
    for number, failure in enumerate(reading.failures, 1):
        if number > _SHOWN and not everything:
            yield ""
            yield f"… and {count - _SHOWN} more; --all prints them, --json has them with every figure"
            break
        yield ""
        yield from _failure(number, failure, cells)
        yield from _findings(diagnose(situation(failure)), cells)
    for pressure in reading.pressure:
        rank = f"rank {pressure.rank}, " if pressure.rank is not None else ""
        yield ""
        where = (
            f"lines {pressure.first_line} to {pressure.last_line}"
            if pressure.count > 1
            else f"line {pressure.first_line}"
        )
        yield f"pressure: {rank}GPU {pressure.device}, {where}"
        yield from _findings(diagnose(pressure_situation(pressure)), cells)
    yield from _others(reading, cells)


def _failure(number: int, failure: "OomFailure", cells: int) -> Iterable[str]:
    yield from _wrap(f"{number}. {', '.join(_who(failure))}", cells, indent=3)
    yield from _wrap(failure.text, cells, first=3, indent=3)
    if failure.role != "only":
        yield from _wrap(f"{failure.role}: {failure.role_why}", cells, first=3, indent=3)
    rows = [(label, _figure(figure)) for label, figure in _figures(failure) if figure is not None]
    rows += [(f"process {holder.pid}", _figure(holder.used)) for holder in failure.holders[:8]]
    if len(failure.holders) > 8:
        rows.append(("processes", f"and {len(failure.holders) - 8} more"))
    for label, text in rows:
        yield f"   {label:<22}{text}"


def _who(failure: "OomFailure") -> Iterable[str]:
    """``line 41``, ``rank 3``, ``GPU 0``, ``in backward (train.py:8 in step)``."""
    again = f" (said on {failure.mentions} lines)" if failure.mentions > 1 else ""
    yield f"line {failure.line}{again}"
    if failure.rank is not None:
        yield f"rank {failure.rank}"
    elif failure.local_rank is not None:
        yield f"local rank {failure.local_rank}"
    if failure.worker is not None:
        yield failure.worker
    if failure.device is not None:
        yield f"GPU {failure.device}"
    yield failure.family.value if failure.certain else f"{failure.family.value}, perhaps memory"
    frame = failure.user_frame or failure.frame
    if failure.phase is not None:
        yield f"in {failure.phase}" + (f" ({frame})" if frame else "")
    elif frame is not None:
        yield f"at {frame}"


def _figures(failure: "OomFailure") -> "Iterable[tuple[str, Figure | None]]":
    yield "requested", failure.requested
    yield "free", failure.free
    yield "total", failure.total
    yield "allowed", failure.allowed
    yield "allocated", failure.allocated
    yield "  in private pools", failure.private_pools
    yield "reserved, unallocated", failure.idle
    yield "reserved in total", failure.reserved
    yield "left for its cache", failure.room
    yield "other allocations", failure.other_allocations
    yield "this process holds", failure.own


def _figure(figure: "Figure") -> str:
    from gpumem_tui.units import format_bytes

    if figure.bytes is None:
        return f"— {figure.reason} (printed {figure.printed})"
    if not figure.printed[-1].isalpha():  # a number whose unit stands elsewhere, or nowhere
        return f"{figure.printed} ({format_bytes(figure.bytes)})"
    if figure.low_bytes == figure.high_bytes and not figure.printed.endswith("bytes"):
        return f"{figure.printed} ({figure.bytes:,} bytes)"
    return figure.printed


def _findings(findings: "Iterable[Finding]", cells: int) -> Iterable[str]:
    for finding in findings:
        yield from _wrap(
            f"→ {finding.verdict.value} ({finding.strength.value}): {finding.headline}",
            cells,
            first=3,
            indent=5,
        )
        because = [e.says for e in finding.evidence if e.low_bytes is None]
        # figures of the message stand above; only what is not printed there is said again
        because += [
            f"{e.says} ({e.source})"
            for e in finding.evidence
            if e.low_bytes is not None and e.source != "message"
        ]
        for label, text in (
            *(("because", text) for text in because),
            ("missing", "; ".join(finding.missing)),
            ("check", finding.check),
            ("next", finding.trial),
        ):
            if text:
                yield from _wrap(f"{label:<9}{text}", cells, first=5, indent=14)


def _others(reading: "Reading", cells: int) -> Iterable[str]:
    if reading.aftermath:
        yield ""
        yield "taken along, no cause of their own:"
        for after in reading.aftermath[:_SHOWN]:
            who = next(
                text
                for known, text in (
                    (after.rank, f"rank {after.rank}"),
                    (after.worker, after.worker),
                    (after.pid, f"pid {after.pid}"),
                    (0, "a process"),
                )
                if known is not None
            )
            yield from _wrap(f"line {after.line}: {who}: {after.what}", cells, first=3, indent=5)
        if len(reading.aftermath) > _SHOWN:
            yield f"   … and {len(reading.aftermath) - _SHOWN} more"
    if reading.planning:
        yield ""
        yield "start-up figures, for planning:"
        for planned in reading.planning[:_SHOWN]:
            yield f"   {planned.what:<18}{planned.printed}  (line {planned.line})"
    for note in reading.notes:
        yield ""
        yield from _wrap(f"note: {note}", cells, indent=6)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _wrap(text: str, cells: int, *, first: int = 0, indent: int = 0) -> list[str]:
    return textwrap.wrap(
        text, cells, initial_indent=" " * first, subsequent_indent=" " * indent, break_on_hyphens=False
    )

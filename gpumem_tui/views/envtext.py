"""The environment report as text, and as JSON for scripts.

``{"gpumem_tui_env": 1, "version": text, "complete": bool, "missing": [text…], "surroundings": {…},
"driver": {…, "cards": […]}, "torch": {…, "backend": "cuda" | "hip" | "cpu" | null},
"system_side": text | null, "abilities": [{"what", "verdict": "yes" | "partly" | "no" | "not known",
"why"}…], "home": text}``

Sizes are raw bytes in fields ending in ``_bytes``; what could not be read is null with a field
ending in ``reason`` beside it. ``system_side`` says why the driver's side is not available where
the build is ROCm's. Fields may be added; none is renamed, removed or given another meaning.
"""

import textwrap
from typing import Any

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.environment import ROCM, Report
from gpumem_tui.analysis.top import device_label
from gpumem_tui.records.environment import CardFacts
from gpumem_tui.views.text import clean

VERSION = 1
"""Version of this schema, as ``gpumem_tui_env`` in the document."""


NARROWEST_CELLS = 20
"""Values are folded into no fewer."""


def document(report: Report, version: str, home: str) -> dict[str, Any]:
    """The report as plain Python values."""
    driver = msgspec.to_builtins(report.driver)
    for card in driver["cards"]:
        card["label"] = device_label(card["index"], card["parent"])
    return {
        "gpumem_tui_env": VERSION,
        "version": version,
        "complete": not report.missing,
        "missing": list(report.missing),
        "surroundings": {
            **msgspec.to_builtins(report.surroundings),
            "variables": dict(report.surroundings.variables),
            "device_files": dict(report.surroundings.device_files),
        },
        "driver": driver,
        "torch": {**msgspec.to_builtins(report.torch), "backend": report.torch.backend},
        "system_side": f"not available: {ROCM}" if report.torch.backend == "hip" else None,
        "abilities": [msgspec.to_builtins(ability) for ability in report.abilities],
        "home": home,
    }


def render_json(report: Report, version: str, home: str) -> str:
    """The document as text, indented, ending with a newline."""
    made = msgspec.json.encode(document(report, version, home))
    return msgspec.json.format(made, indent=2).decode() + "\n"


def render(report: Report, version: str, home: str, cells: int | None = None) -> str:
    """The report as text, ending with a newline; folded into so many ``cells``, if they are given."""
    lines = [f"gpumem-tui {version}"]
    for title, rows in (
        ("machine", _machine(report)),
        ("driver", _driver(report)),
        ("cards", [_card(card) for card in report.driver.cards] or [("none", _no_cards(report))]),
        ("PyTorch", _torch(report)),
        ("variables", _variables(report)),
    ):
        lines += ["", title, *_table(rows, cells)]
    lines += ["", "what can be measured here"]
    lines += _table([(a.what, f"{a.verdict.value}: {clean(a.why)}") for a in report.abilities], cells)
    lines += ["", "recordings", f"  {home}"]
    if report.missing:
        lines += ["", "missing"]
        for sentence in report.missing:
            lines += _folded(f"  {clean(sentence)}", 4, cells)
    if report.missing and report.torch.version is None:
        lines += ["", "with the PyTorch of another interpreter", "  gpumem-tui env --python PATH"]
    if report.missing and not report.driver.cards:
        lines += ["", "without a GPU", "  gpumem-tui run --simulate 24GiB train.py, or gpumem-tui demo"]
    return "".join(f"{line}\n" for line in lines)


def _table(rows: list[tuple[str, str]], cells: int | None) -> list[str]:
    width = max(len(name) for name, _ in rows)
    folded = [_folded(f"  {name:<{width}}  {value}", width + 4, cells) for name, value in rows]
    return [line for lines in folded for line in lines]


def _folded(line: str, hanging: int, cells: int | None) -> list[str]:
    """A line that a terminal would break anywhere, broken between words; what has no blank stays whole."""
    if cells is None or len(line) <= cells or cells - hanging < NARROWEST_CELLS:
        return [line]
    indent = " " * hanging
    kept = textwrap.wrap(line[hanging:], cells - hanging, break_long_words=False, break_on_hyphens=False)
    return [line[:hanging] + kept[0], *(indent + rest for rest in kept[1:])]


def _variables(report: Report) -> list[tuple[str, str]]:
    """Those that are set."""
    known = report.surroundings.variables
    found = [(name, value) for name, value in known if value is not None]
    return found or [("none", f"of {', '.join(name for name, _ in known)}")]


def _or(value: object, reason: str = "not known") -> str:
    return f"{units.MISSING} ({reason})" if value in (None, "") else clean(str(value))


def _machine(report: Report) -> list[tuple[str, str]]:
    here = report.surroundings
    limit = (
        "" if here.cgroup_limit_bytes is None else f", limit {units.format_bytes(here.cgroup_limit_bytes)}"
    )
    rows = [
        ("host", here.host),
        ("system", f"{_or(here.system)}, kernel {clean(here.kernel)}, {here.machine}"),
        ("host memory", f"{units.format_bytes(here.memory_bytes)}{limit}"),
        ("container", _or(here.container, "nothing tells of one")),
        ("pid namespace", _or(here.pid_namespace)),
    ]
    if here.wsl:
        rows.append(("WSL", "yes"))
    if here.mps is not None:
        rows.append(("MPS", clean(here.mps)))
    files = ", ".join(f"{path}{'' if usable else ' (no permission)'}" for path, usable in here.device_files)
    rows.append(("device files", files or f"{units.MISSING} (none)"))
    return rows


def _driver(report: Report) -> list[tuple[str, str]]:
    driver = report.driver
    rows = []
    if driver.reason is not None:
        rows.append(("NVML", f"{units.MISSING} ({_reason(report)})"))
    else:
        rows.append(("NVML", _or(driver.nvml_version)))
        rows.append(("driver", _or(driver.driver_version)))
        rows.append(("CUDA up to", _or(driver.cuda_version)))
    rows.append(("kernel module", _or(driver.module_version, "/proc/driver/nvidia/version is not there")))
    if report.torch.backend == "hip":
        rows.append(("system side", f"not available: {ROCM}"))
    return rows


def _reason(report: Report) -> str:
    driver = report.driver
    reason = driver.reason.value if driver.reason is not None else "the driver names no card"
    return f"{reason}: {clean(driver.word)}" if driver.word else reason


def _no_cards(report: Report) -> str:
    return _reason(report)


def _card(card: CardFacts) -> tuple[str, str]:
    if card.total_bytes is None:
        size = f"memory {units.MISSING} ({card.memory_reason or 'not known'})"
    else:
        size = f"{units.format_gib(card.total_bytes)} GiB"
        if card.reserved_bytes is not None:
            size += f", of it {units.format_bytes(card.reserved_bytes)} driver-reserved"
    parts = [clean(card.name or units.MISSING), size]
    if card.capability is not None:
        parts.append(f"compute capability {card.capability}")
    if card.mig:
        parts.append("MIG is on" if card.parent is None else "MIG instance")
    if card.pci is not None and card.parent is None:
        parts.append(card.pci)
    if card.uuid is not None:
        parts.append(card.uuid if card.uuid.startswith("MIG-") else f"GPU-{card.uuid}")
    return f"GPU {device_label(card.index, card.parent)}", ", ".join(parts)


def _torch(report: Report) -> list[tuple[str, str]]:
    torch = report.torch
    rows = [("Python", f"{torch.python}{f', {torch.python_version}' if torch.python_version else ''}")]
    if torch.version is None:
        return [*rows, ("PyTorch", f"{units.MISSING} ({clean(torch.error or 'not installed')})")]
    backend = {"cuda": f"CUDA {torch.cuda}", "hip": f"HIP {torch.hip}", "cpu": "CPU only"}[
        torch.backend or "cpu"
    ]
    rows += [("PyTorch", torch.version), ("backend", backend)]
    if torch.backend != "cpu":
        rows.append(("allocator", f"{_or(torch.allocator)}{f', {torch.settings}' if torch.settings else ''}"))
        rows.append(("devices", f"{_or(torch.devices)} by torch.cuda.device_count()"))
    return rows

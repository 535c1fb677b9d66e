"""What people have set in the view, kept in ``$XDG_CONFIG_HOME/gpumem-tui/config.toml``.

Reads the file with a TOML reader; writes only the lines of the settings that changed, so
that comments and keys of other versions stay. A flag of the command line wins over the
file. Refuses to write over a file that it cannot read.
"""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpumem_tui.errors import BadInput

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

INTERVAL_S = (0.5, 60.0)
"""Shortest and longest time between two pictures, in seconds."""

LARGEST_BYTES = 1 << 20
"""A larger file is no configuration."""


class Settings(msgspec.Struct, frozen=True):
    """Each is None where nothing was set, and the view decides."""

    theme: str | None = None
    interval_s: float | None = None
    ascii: bool | None = None
    mouse: bool | None = None
    low_bandwidth: bool | None = None
    sort: str | None = None
    """Order of the processes."""

    def over(self, under: "Settings") -> "Settings":
        """These, and where they say nothing the others."""
        told = {name: value for name in _KEYS if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(under, **told)


_KEYS = {
    "theme": "theme",
    "interval_s": "interval",
    "ascii": "ascii",
    "mouse": "mouse",
    "low_bandwidth": "low-bandwidth",
    "sort": "sort",
}
"""Field → its name in the file."""


def config_path(environ: Mapping[str, str]) -> Path:
    """Where the settings are kept."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or "~").expanduser() / ".config")
    return Path(base) / "gpumem-tui" / "config.toml"


def read(path: Path, themes: tuple[str, ...], orders: tuple[str, ...]) -> Settings:
    """The settings in a file; none where there is no file. Raises :class:`BadInput` with file and key."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise BadInput(f"{path} is too large for a configuration; mend or remove it")
        found = tomllib.loads(path.read_bytes().decode())
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {' '.join(str(error).split())}; mend or remove it") from None

    def one_of(allowed: tuple[str, ...]) -> Callable[[object], bool]:
        return lambda value: isinstance(value, str) and value in allowed

    def an_interval(value: object) -> bool:
        return type(value) in (int, float) and INTERVAL_S[0] <= float(str(value)) <= INTERVAL_S[1]

    def a_switch(value: object) -> bool:
        return isinstance(value, bool)

    rules: dict[str, tuple[Callable[[object], bool], str]] = {
        "theme": (one_of(themes), "one of " + ", ".join(themes)),
        "interval_s": (an_interval, f"a number from {INTERVAL_S[0]:g} to {INTERVAL_S[1]:g}"),
        "sort": (one_of(orders), "one of " + ", ".join(orders)),
        **dict.fromkeys(("ascii", "mouse", "low_bandwidth"), (a_switch, "true or false")),
    }
    told: dict[str, Any] = {}
    for field, name in _KEYS.items():
        if name in found:
            good, wanted = rules[field]
            if not good(found[name]):
                raise BadInput(f"{path}: {name} = {found[name]!r} is not {wanted}; mend or remove the line")
            told[field] = float(found[name]) if field == "interval_s" else found[name]
    return Settings(**told)


def write(path: Path, changes: Settings) -> None:
    """Put these into the file; what they do not tell stays as it is. Raises OSError."""
    text = path.read_text() if path.exists() else ""
    for field, name in _KEYS.items():
        value = getattr(changes, field)
        if value is not None:
            text = _put(text, name, _literal(value))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=".config-", suffix=".toml")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(new).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(new).unlink()
        raise


def _literal(value: str | bool | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def _put(text: str, name: str, literal: str) -> str:
    """Replace the key's line before the first table, or add one there."""
    table = re.search(r"(?m)^[ \t]*\[", text)
    head, rest = (text, "") if table is None else (text[: table.start()], text[table.start() :])
    line = re.compile(rf"(?m)^([ \t]*{re.escape(name)}[ \t]*=[ \t]*)(\"[^\"\n]*\"|[^#\n]*?)([ \t]*(?:#.*)?)$")
    if line.search(head):
        head = line.sub(lambda found: f"{found[1]}{literal}{found[3]}", head, count=1)
    else:
        gap = "" if not head or head.endswith("\n") else "\n"
        head = f"{head}{gap}{name} = {literal}\n"
    return head + rest

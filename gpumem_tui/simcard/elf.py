"""The names that an ELF file defines: what ``nm`` would tell, without binutils.

Owns reading 64-bit little-endian ELF symbol tables. Refuses everything else; libraries
of several hundred megabytes are mapped, never read as a whole.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpumem_tui.errors import BadInput

_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<I2BH2Q")
_VERDEF = struct.Struct("<4H3I")

_SHT_SYMTAB, _SHT_DYNSYM, _SHT_VERDEF, _SHT_VERSYM = 2, 11, 0x6FFFFFFD, 0x6FFFFFFF
_SHN_UNDEF, _SHN_ABS = 0, 0xFFF1
_GLOBAL, _WEAK = 1, 2
_HIDDEN = 0x8000
"""Bit of a version index: the name is there for old programs only (``name@VERSION``)."""


@dataclass(frozen=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


class _File:
    """A mapped ELF file and its sections."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        if data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
            raise BadInput(f"{path} is not a 64-bit little-endian ELF file")
        self.data = data
        (start,) = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<2H", data, 58)
        self.sections = []
        for index in range(count):
            fields = _SECTION.unpack_from(data, start + index * size)
            self.sections.append(_Section(kind=fields[1], offset=fields[4], size=fields[5], link=fields[6]))

    def of_kind(self, kind: int) -> _Section | None:
        return next((s for s in self.sections if s.kind == kind), None)

    def text(self, strings: _Section, offset: int) -> str:
        start = strings.offset + offset
        return self.data[start : self.data.find(b"\0", start)].decode("ascii", "replace")

    def defined(self, table: _Section) -> Iterator[tuple[int, str]]:
        """(index, name) of each global or weak name with a value in this file."""
        strings = self.sections[table.link]
        for index in range(1, table.size // _SYMBOL.size):
            name, info, _, section, _, _ = _SYMBOL.unpack_from(self.data, table.offset + index * _SYMBOL.size)
            if info >> 4 in (_GLOBAL, _WEAK) and section not in (_SHN_UNDEF, _SHN_ABS):
                yield index, self.text(strings, name)

    def versions(self) -> dict[int, str]:
        """Version index → tag, of the versions that this library defines."""
        section = self.of_kind(_SHT_VERDEF)
        found: dict[int, str] = {}
        at = section.offset if section else 0
        while section:
            _, _, index, _, _, aux, following = _VERDEF.unpack_from(self.data, at)
            (name,) = struct.unpack_from("<I", self.data, at + aux)
            found[index] = self.text(self.sections[section.link], name)
            if not following:
                break
            at += following
        return found


def exports(library: Path) -> dict[str, str | None]:
    """Read what a shared library offers: name → version tag, or ``None`` for an unversioned name."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        elf = _File(data, library)
        table = elf.of_kind(_SHT_DYNSYM)
        if table is None:
            return {}
        versym, tags = elf.of_kind(_SHT_VERSYM), elf.versions()
        found: dict[str, str | None] = {}
        for index, name in elf.defined(table):
            version = 1
            if versym:
                (version,) = struct.unpack_from("<H", data, versym.offset + 2 * index)
            if not version & _HIDDEN:
                found[name] = tags.get(version) if version > 1 else None
        return found


def defined(object_file: Path) -> set[str]:
    """Read the global names that an object file (``.o``) defines."""
    with object_file.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        elf = _File(data, object_file)
        table = elf.of_kind(_SHT_SYMTAB)
        return {name for _, name in elf.defined(table)} if table else set()

"""The C compiler: the system's, or the one in the ``ziglang`` wheel."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gpumem_tui.errors import MissingRequirement

OVERRIDE = "SIMCARD_CC"
"""Environment variable: a compiler's command line, or ``zig`` for the one in the wheel."""

_ZIG_TARGET = "x86_64-linux-gnu.2.28"
"""The oldest glibc that PyTorch's wheels run on; a fixed target also keeps zig from
using instructions that another machine with the same home directory may not have."""

_TRIAL = "#include <pthread.h>\n#include <stdio.h>\n#include <sys/mman.h>\nint simcard_trial;\n"


@dataclass(frozen=True)
class Compiler:
    """A command that compiles and links C."""

    argv: tuple[str, ...]
    is_zig: bool = False
    """Zig wants a cache of its own, and sanitizes unless told not to."""

    def flags(self) -> list[str]:
        """Return what every compilation gets."""
        zig = ["-fno-sanitize=all", "-w"] if self.is_zig else []
        return ["-std=gnu11", "-O2", "-fPIC", "-g0", *zig]

    def libraries(self) -> list[str]:
        """Return what every link ends with."""
        # Without -nostdlib, zig first compiles a runtime that plain C has no need of: 16 s.
        zig = ["-nostdlib", "-lc"] if self.is_zig else []
        return ["-lpthread", "-ldl", "-lm", *zig]

    def run(self, *arguments: str | Path, work: Path) -> None:
        """Run it; raises :class:`MissingRequirement` with what it said last."""
        environ = dict(os.environ)
        environ.pop("LD_PRELOAD", None)
        if self.is_zig:
            environ |= {"ZIG_GLOBAL_CACHE_DIR": str(work / "zig"), "ZIG_LOCAL_CACHE_DIR": str(work / "zig")}
        command = [*self.argv, *map(str, arguments)]
        done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise MissingRequirement(
                f"the simulated card could not be built: {shlex.join(self.argv)} ended with "
                f"{done.returncode}: {said[0] if said else 'no message'}"
            )


def _zig() -> Compiler | None:
    if importlib.util.find_spec("ziglang") is None:
        return None
    return Compiler((sys.executable, "-m", "ziglang", "cc", "-target", _ZIG_TARGET), is_zig=True)


def _works(compiler: Compiler) -> bool:
    """Whether it links a library; a compiler without the C library's headers is common in containers."""
    with tempfile.TemporaryDirectory(prefix="simcard-cc-") as folder:
        source, work = Path(folder) / "trial.c", Path(folder)
        source.write_text(_TRIAL)
        try:
            compiler.run("-shared", "-fPIC", source, "-o", work / "trial.so", "-lpthread", work=work)
        except (MissingRequirement, OSError):
            return False
        return True


def find_compiler() -> Compiler:
    """Find the system's ``cc``, ``gcc`` or ``clang`` if one works, else ``ziglang``'s.

    ``SIMCARD_CC`` names another. Raises :class:`MissingRequirement` where there is none.
    """
    wanted = os.environ.get(OVERRIDE, "").strip()
    if wanted and wanted != "zig":
        return Compiler(tuple(shlex.split(wanted)))
    for name in () if wanted else ("cc", "gcc", "clang"):
        program = shutil.which(name)
        if program and _works(Compiler((program,))):
            return Compiler((program,))
    zig = _zig()
    if zig is None:
        raise MissingRequirement(
            "the simulated card needs a C compiler: install gcc or clang, "
            "or pip install ziglang beside gpumem-tui"
        )
    return zig

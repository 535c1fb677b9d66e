"""Whose PyTorch is to be simulated, and where its parts are.

The workload's interpreter is rarely ours. It is asked once, by a short program that
runs on any Python 3 and imports nothing of torch; everything else happens here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpumem_tui.errors import BadInput, MissingRequirement

_PYTHON = re.compile(r"python[\d.]*t?")

_MARK = "simcard-interpreter:"
"""Starts the line that is ours, whatever a sitecustomize prints before it."""

_QUESTION = """
import importlib.util, json, platform, sys
def folder(name):
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    return spec and list(spec.submodule_search_locations or [])[:1] or []
print("\\n%s" + json.dumps({"path": sys.path, "torch": folder("torch"), "system": platform.system(),
                           "machine": platform.machine(), "libc": platform.libc_ver()}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What an interpreter says about itself."""

    python: Path
    search_path: tuple[Path, ...]
    """Its ``sys.path``, where wheels lie."""
    torch: Path | None
    """The folder of the package, or ``None`` without PyTorch."""
    platform: str
    """For example ``Linux x86_64``."""
    libc: str
    """Name and version; what is built here runs with this one only."""

    def torch_build(self) -> tuple[str | None, str | None, str | None]:
        """(version, CUDA version, HIP version) of its PyTorch, read without importing it."""
        if self.torch is None:
            return None, None, None
        try:
            text = (self.torch / "version.py").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None, None, None
        found = dict(re.findall(r"^(__version__|cuda|hip)\s*(?::[^=]+)?=\s*['\"]([^'\"]+)['\"]", text, re.M))
        return found.get("__version__"), found.get("cuda"), found.get("hip")

    def require_cuda_torch(self) -> None:
        """Raise :class:`MissingRequirement` unless its PyTorch is a build for CUDA."""
        if self.torch is None:
            raise MissingRequirement(
                f"{self.python} has no PyTorch; the simulated card runs the CUDA build of it: "
                f"{self.python} -m pip install torch"
            )
        version, cuda, hip = self.torch_build()
        name = f"PyTorch {version or 'of unknown version'} of {self.python}"
        if hip:
            raise MissingRequirement(f"{name} is a ROCm build; the simulated card needs the CUDA build")
        if not cuda:
            raise MissingRequirement(
                f"{name} is a CPU-only build; the simulated card needs the CUDA build, which runs without "
                "a GPU as well: pip install --force-reinstall torch (on Linux, from PyPI)"
            )


def ask(python: Path) -> Interpreter:
    """Run the interpreter once (about 50 ms). Raises where it does not run, or not on Linux x86-64."""
    try:
        done = subprocess.run(
            [str(python), "-c", _QUESTION % _MARK], stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"{python} does not run as a Python interpreter: {error}") from None
    lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.startswith(_MARK)]
    if not lines:
        raise BadInput(f"{python} does not run as a Python interpreter (exit code {done.returncode})")
    answer = json.loads(lines[-1].removeprefix(_MARK))
    found = Interpreter(
        python=python,
        search_path=tuple(Path(entry or ".") for entry in answer["path"]),
        torch=Path(answer["torch"][0]) if answer["torch"] else None,
        platform=f"{answer['system']} {answer['machine']}",
        libc=" ".join(answer["libc"]).strip(),
    )
    if found.platform != "Linux x86_64" or not found.libc.startswith("glibc"):
        what = found.platform if found.platform != "Linux x86_64" else "Linux without glibc"
        raise MissingRequirement(f"the simulated card runs on Linux x86-64 with glibc only, not on {what}")
    return found


def _shebang(program: Path) -> list[str]:
    """Read the words after ``#!``, also of the form that pip writes for very long paths."""
    try:
        with program.open("rb") as file:
            lines = file.read(1024).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    if not lines or not lines[0].startswith("#!"):
        return []
    words = lines[0][2:].split()
    if words[:1] == ["/bin/sh"] and len(lines) > 1 and lines[1].startswith("'''exec' "):
        return lines[1].removeprefix("'''exec' ").split(' "$0"')[0].strip().strip('"').splitlines()
    return words


def _is_python(word: str) -> bool:
    return bool(_PYTHON.fullmatch(Path(word).name))


def find_python(command: Sequence[str], environ: Mapping[str, str] | None = None) -> Path:
    """Find the interpreter that ``command`` will run: whose torch is to be simulated.

    ``python …`` itself; the interpreter in the first line of a program such as
    ``torchrun`` or ``accelerate``; a ``python`` that lies beside it; otherwise ours.
    A path is never resolved: a virtual environment's ``python`` is a link.
    """
    environ = os.environ if environ is None else environ
    search = environ.get("PATH", os.defpath)
    words = list(command)
    if words and Path(words[0]).name == "env":
        words = [w for w in words[1:] if "=" not in w and not w.startswith("-")]
    program = shutil.which(words[0], path=search) if words else None
    if not program:
        return Path(sys.executable)
    if _is_python(program):
        return Path(program).absolute()
    first = _shebang(Path(program))
    if first and Path(first[0]).name == "env":
        first = [w for w in first[1:] if not w.startswith("-")]
    if first and _is_python(first[0]):
        found = shutil.which(first[0], path=search)
        if found:
            return Path(found).absolute()
    beside = Path(program).absolute().parent / "python"
    return beside if beside.exists() else Path(sys.executable)

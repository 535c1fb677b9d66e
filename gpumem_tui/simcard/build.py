"""Builds the simulated libraries for the PyTorch of one interpreter, once.

Owns the cache below ``$XDG_CACHE_HOME/gpumem-tui/simcard``: one folder for each
combination of our sources, NVIDIA's libraries and the C library, complete or not
there. Each library in ``src/`` takes the name of one of NVIDIA's; what it does not
define of the real one's names becomes a stub. Refuses to guess: without headers, or
with a PyTorch that is not a CUDA build from wheels, it says so.
"""

import concurrent.futures
import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpumem_tui.errors import MissingRequirement
from gpumem_tui.simcard import elf, stubs
from gpumem_tui.simcard.compiler import Compiler, find_compiler
from gpumem_tui.simcard.interpreter import Interpreter, ask

_HERE = Path(__file__).resolve().parent
_SOURCES = _HERE / "src"

_CODE = ("build.py", "compiler.py", "elf.py", "stubs.py")
"""What of our Python decides how the libraries come out."""

_CORE = "libsimcard.so"
_NVML = "libnvidia-ml.so.1"

_REPLACED: dict[str, str | None] = {
    "cudart": "cudart.c",
    "cublas": "cublas.c",
    "cublasLt": "cublaslt.c",
    "cudnn": "cudnn.c",
    "nccl": "nccl.c",
    "cusolver": None,
    "cusparse": None,
    "cusparseLt": None,
    "cufft": None,
    "curand": None,
}
"""The libraries that are replaced, in the order of preloading; ``None``: stubs only."""


@dataclass(frozen=True)
class Libraries:
    """A folder of built libraries."""

    folder: Path

    @property
    def core(self) -> Path:
        """The library that owns the state file."""
        return self.folder / "lib" / _CORE

    @property
    def nvml(self) -> Path:
        """The simulated machine's ``libnvidia-ml.so.1``; the only one in its folder."""
        return self.folder / "nvml" / _NVML

    @property
    def hold(self) -> Path:
        """The program that holds memory."""
        return self.folder / "hold"

    @property
    def preload(self) -> tuple[Path, ...]:
        """What a CUDA program needs to have loaded before its own libraries."""
        names = (self.folder / "preload.txt").read_text().split()
        return tuple(self.folder / "lib" / name for name in names)

    @property
    def runs_torch(self) -> bool:
        """Whether there is more than NVML."""
        return len(self.preload) > 1


@dataclass(frozen=True)
class _Parts:
    """What the build takes from the wheels of the interpreter."""

    real: Mapping[str, Path]
    """``cudart`` → the real ``libcudart.so.13``, and so on; empty for NVML only."""
    includes: tuple[Path, ...]
    pynvml: tuple[Path, ...]


def cache_folder() -> Path:
    """Where builds are kept."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    return base / "gpumem-tui" / "simcard"


def _find_parts(interpreter: Interpreter, nvml_only: bool) -> _Parts:
    pynvml = [entry / "pynvml.py" for entry in interpreter.search_path]
    ours = importlib.util.find_spec("pynvml")
    if ours and ours.origin:
        pynvml.append(Path(ours.origin))
    modules = tuple(dict.fromkeys(p for p in pynvml if p.is_file()))
    if nvml_only:
        return _Parts({}, (), modules)
    interpreter.require_cuda_torch()
    assert interpreter.torch is not None
    folders = [f for entry in interpreter.search_path for f in sorted(entry.glob("nvidia/*/lib"))]
    real: dict[str, Path] = {}
    for folder in [*folders, interpreter.torch / "lib"]:
        for name in _REPLACED:
            for path in sorted(folder.glob(f"lib{name}.so.*")):
                real.setdefault(name, path)
    wheels = [f for entry in interpreter.search_path for f in sorted(entry.glob("nvidia/*/include"))]
    system = sorted(Path("/usr/local").glob("cuda*/include"), reverse=True)
    main = [f for f in wheels + system if (f / "cuda_runtime_api.h").exists() and (f / "cuda.h").exists()]
    if "cudart" not in real or not main:
        lacking = "libraries" if "cudart" not in real else "headers"
        raise MissingRequirement(
            f"the simulated card runs PyTorch from pip's wheels for CUDA 12 or 13; "
            f"NVIDIA's {lacking} were not found beside {interpreter.torch}"
        )
    return _Parts(real, (main[0], *(f for f in wheels if f != main[0])), modules)


def _fingerprint(parts: _Parts, libc: str) -> str:
    """Names the build: our code by content, NVIDIA's files by path, size and time."""
    digest = hashlib.sha256(libc.encode())
    for path in [*(_HERE / name for name in _CODE), *sorted(_SOURCES.iterdir())]:
        digest.update(path.name.encode() + path.read_bytes())
    for path in [*parts.real.values(), *(f / "cuda.h" for f in parts.includes[:1]), *parts.pynvml]:
        facts = path.stat()
        digest.update(f"{path} {facts.st_size} {facts.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


class _Builder:
    """One build, in a folder that only gets its name when it is complete."""

    def __init__(self, out: Path, parts: _Parts, compiler: Compiler) -> None:
        self.out, self.parts, self.compiler = out, parts, compiler
        self.work = out / "work"
        self.shim = self.work / "include"
        for folder in (self.work, out / "lib", out / "nvml"):
            folder.mkdir()

    def compile(self, source: Path, *flags: str) -> Path:
        target = self.work / f"{source.stem}.o"
        include = [f"-I{folder}" for folder in (_SOURCES, *self.parts.includes, self.shim)]
        self.compiler.run(
            *self.compiler.flags(), *include, *flags, "-c", source, "-o", target, work=self.work
        )
        return target

    def link(self, folder: str, soname: str, *parts: Path | str) -> None:
        # The core is beside each library; nvml/ has it one folder further.
        core = [] if soname == _CORE else [f"-L{self.out / 'lib'}", "-lsimcard"]
        rpath = "$ORIGIN:$ORIGIN/../lib"
        options = ["-shared", "-Wl,--no-undefined", f"-Wl,-soname,{soname}", f"-Wl,-rpath,{rpath}"]
        target = self.out / folder / soname
        arguments = [*options, "-o", target, *parts, *core, *self.compiler.libraries()]
        self.compiler.run(*self.compiler.flags(), *arguments, work=self.work)

    def library(
        self,
        name: str,
        soname: str,
        source: str | None,
        names: stubs.Names,
        parameters: Mapping[str, list[str]] | None = None,
        extra: str = "",
        flags: tuple[str, ...] = (),
        folder: str = "lib",
    ) -> None:
        """One library: our source, stubs for the rest of its names, its version tags."""
        parts: list[Path | str] = [self.compile(_SOURCES / source, *flags)] if source else []
        have = elf.defined(Path(parts[0])) if parts else set()
        text = self.work / f"stubs_{name}.c"
        text.write_text(stubs.source(name, names, have, parameters or {}, extra))
        parts.append(self.compile(text))
        script = stubs.version_script(names)
        if script:
            (self.work / f"{name}.map").write_text(script)
            parts.append(f"-Wl,--version-script={self.work / (name + '.map')}")
        self.link(folder, soname, *parts)

    def wheel_library(self, name: str) -> None:
        real = self.parts.real[name]
        headers = [h for f in self.parts.includes for h in f.glob(f"{name}*.h")] if name != "cudart" else []
        flags = (f"-D{self.version(name)}",) if name in ("cudnn", "nccl") else ()
        self.library(
            name, real.name, _REPLACED[name], elf.exports(real), stubs.prototypes(headers), flags=flags
        )

    def version(self, name: str) -> str:
        """Tell the version macro of cuDNN or NCCL, from the real header."""
        header = {"cudnn": "cudnn_version.h", "nccl": "nccl.h"}[name]
        text = next((f / header for f in self.parts.includes if (f / header).exists()), None)
        found = text.read_text(errors="replace") if text else ""
        if name == "nccl":
            code = re.search(r"#define NCCL_VERSION_CODE (\d+)", found)
            return f"NCCL_VERSION_CODE={code[1] if code else 22700}"
        numbers = [int(n) for n in re.findall(r"#define CUDNN_(?:MAJOR|MINOR|PATCHLEVEL) (\d+)", found)]
        major, minor, patch = numbers[:3] if len(numbers) >= 3 else (9, 10, 0)
        return f"CUDNN_VERSION={major * 10000 + minor * 100 + patch}"

    def driver(self) -> None:
        names, aliases = stubs.driver_names(self.parts.includes[0] / "cuda.h")
        self.library("cuda", "libcuda.so.1", "cuda_driver.c", names, extra=stubs.alias_table(aliases))

    def everything(self) -> None:
        if not any((f / "crt/host_defines.h").exists() for f in self.parts.includes):
            (self.shim / "crt").mkdir(parents=True)
            (self.shim / "crt/host_defines.h").write_text(stubs.HOST_DEFINES)
        self.link("lib", _CORE, *(self.compile(_SOURCES / f) for f in ("state.c", "process.c")))
        names: dict[str, str | None] = {}
        for module in self.parts.pynvml:
            names |= stubs.nvml_names(module)
        self.library("nvml", _NVML, "nvml.c", names, folder="nvml")
        self.compiler.run(
            self.compile(_SOURCES / "hold.c"),
            *("-o", self.out / "hold", f"-L{self.out / 'lib'}", "-lsimcard", "-Wl,-rpath,$ORIGIN/lib"),
            *self.compiler.libraries(),
            work=self.work,
        )
        if self.parts.real:
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                jobs = [pool.submit(self.driver)]
                jobs += [pool.submit(self.wheel_library, name) for name in self.parts.real]
                for job in jobs:
                    job.result()
        preload = [_CORE, *(self.parts.real[name].name for name in _REPLACED if name in self.parts.real)]
        (self.out / "preload.txt").write_text("\n".join(preload) + "\n")
        shutil.rmtree(self.work)


@contextlib.contextmanager
def _writing(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MissingRequirement(
            f"the simulated card's libraries cannot be kept in {cache}: {error.strerror or error}; "
            "set XDG_CACHE_HOME to a directory that can be written"
        ) from None


def build(python: Path, *, nvml_only: bool = False) -> Libraries:
    """Build the libraries for the torch of ``python``, in a few seconds the first time.

    ``nvml_only`` is for an interpreter without PyTorch: monitors see the machine,
    nothing runs on it. Several processes may build at the same time; the first to
    be done wins. Raises :class:`MissingRequirement` with what is missing.
    """
    interpreter = ask(python)
    parts = _find_parts(interpreter, nvml_only)
    cache = cache_folder()
    if set(" \t\n:;") & set(str(cache)):
        raise MissingRequirement(
            f"the dynamic linker cannot preload from {str(cache)!r}; "
            "set XDG_CACHE_HOME to a path without spaces and colons"
        )
    target = cache / _fingerprint(parts, interpreter.libc)
    if (target / "preload.txt").exists():
        return Libraries(target)
    compiler = find_compiler()
    with _writing(cache):
        cache.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="build-", dir=cache))
    try:
        with _writing(cache):
            _Builder(folder, parts, compiler).everything()
            folder.chmod(0o755)
            try:
                folder.rename(target)
            except OSError:  # another process was faster
                if not (target / "preload.txt").exists():
                    raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Libraries(target)

"""Building the libraries: with each compiler, at the same time, and where it cannot be."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpumem_tui.errors import MissingRequirement
from gpumem_tui.simcard import build, elf, find_compiler

PYTHON = Path(sys.executable)

BUILD = """
import sys
from pathlib import Path
from gpumem_tui.simcard import build
print(build(Path(sys.executable), nvml_only=True).folder)
"""


@pytest.fixture(scope="module")
def built(simcard_libraries):
    return simcard_libraries


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_libraries_have_the_names_and_versions_of_the_real_ones(built):
    torch = importlib.util.find_spec("torch").submodule_search_locations[0]
    wheels = Path(torch).parent / "nvidia"
    for ours in built.preload[1:]:
        real = next(path for path in wheels.glob(f"*/lib/{ours.name}"))
        expected = {name: tag for name, tag in elf.exports(real).items() if name[0].islower()}

        assert expected.items() <= elf.exports(ours).items(), ours.name


def test_a_build_that_is_there_is_taken_as_it_is(built):
    before = (built.folder / "preload.txt").stat().st_mtime_ns

    assert build(PYTHON) == built
    assert (built.folder / "preload.txt").stat().st_mtime_ns == before
    assert sorted(path.name for path in built.folder.iterdir()) == ["hold", "lib", "nvml", "preload.txt"]


@pytest.mark.slow
def test_two_builds_at_once_end_in_one_folder(built, cache):
    pair = [
        subprocess.Popen([PYTHON, "-c", BUILD], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=60) for process in pair]

    assert [process.returncode for process in pair] == [0, 0], told
    (folder,) = {Path(out.strip()) for out, _ in told}
    assert list((cache / "gpumem-tui" / "simcard").iterdir()) == [folder]


def test_a_cache_that_cannot_be_written_is_named(built, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(MissingRequirement, match=r"cannot be kept in .*file/gpumem-tui.* set XDG_CACHE_HOME"):
        build(PYTHON, nvml_only=True)


def test_a_cache_that_the_linker_cannot_preload_from_is_refused(built, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with a space"))

    with pytest.raises(MissingRequirement, match="without spaces and colons"):
        build(PYTHON, nvml_only=True)
    assert not (tmp_path / "with a space").exists()


def test_a_failing_compiler_leaves_nothing_behind(built, cache, monkeypatch):
    monkeypatch.setenv("SIMCARD_CC", "false")

    with pytest.raises(MissingRequirement, match="could not be built: false ended with 1"):
        build(PYTHON, nvml_only=True)
    assert list((cache / "gpumem-tui" / "simcard").iterdir()) == []


def test_a_read_only_cache_serves_what_it_has(built, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")  # nor is a compiler asked for
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    compiled = build(PYTHON)

    assert compiled.core.exists()


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="ziglang is not installed")
def test_pytorch_runs_on_libraries_that_zig_built(built, cache, monkeypatch, make_simcard):
    monkeypatch.setenv("PATH", f"{PYTHON.parent}")  # no system compiler, no binutils
    assert not shutil.which("cc")
    assert find_compiler().is_zig

    libraries = build(PYTHON)
    card = make_simcard("8GiB", libraries=libraries)
    holder = card.hold("1GiB")
    card.python("""
        import torch
        net = torch.nn.Linear(512, 512).cuda()
        net(torch.randn(8, 512, device="cuda")).sum().backward()
        try:
            torch.empty(9 << 30, dtype=torch.uint8, device="cuda")
            raise SystemExit("no error")
        except torch.OutOfMemoryError as e:
            print(e)
        import pynvml
        pynvml.nvmlInit()
        assert len(pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))) == 2
    """)

    assert libraries.folder.is_relative_to(cache)
    assert [p.pid for p in card.device().processes] == [holder.pid]
    assert [path.name for path in cache.iterdir()] == ["gpumem-tui"]  # zig's own cache has gone

"""Whose torch is to be simulated, and what is said where that cannot be."""

import os
import sys
from pathlib import Path

import pytest

from gpumem_tui.errors import BadInput, GpumemError, MissingRequirement
from gpumem_tui.simcard import build, find_compiler, find_python
from gpumem_tui.simcard.interpreter import ask

ON_LINUX = sys.platform == "linux" and os.uname().machine == "x86_64"
linux_only = pytest.mark.skipif(not ON_LINUX, reason="the simulated card runs on Linux x86-64 only")


def program(path, first_lines=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(first_lines)
    path.chmod(0o755)
    return path


@pytest.fixture
def venv(tmp_path):
    """A folder of programs, as a virtual environment has it."""
    folder = tmp_path / "a venv" / "bin"
    python = program(folder / "python3.12", "\x7fELF")
    program(folder / "torchrun", f"#!{tmp_path}/other/bin/python\n")
    program(tmp_path / "other" / "bin" / "python", "\x7fELF")
    program(folder / "accelerate", f"""#!/bin/sh\n'''exec' "{python}" "$0" "$@"\n' '''\n""")
    program(folder / "by-env", "#!/usr/bin/env -S python3.12\n")
    program(folder / "binary", "\x7fELF")
    program(tmp_path / "beside" / "tool", "\x7fELF")
    program(tmp_path / "beside" / "python", "\x7fELF")
    return folder


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python3.12", "train.py"], "a venv/bin/python3.12"),
        (["torchrun", "--nproc-per-node=2", "train.py"], "other/bin/python"),
        (["accelerate", "launch", "train.py"], "a venv/bin/python3.12"),
        (["by-env"], "a venv/bin/python3.12"),
        (["env", "A=1", "python3.12", "-m", "train"], "a venv/bin/python3.12"),
        (["../beside/tool"], "beside/python"),
        (["binary"], None),
        (["no-such-program"], None),
        ([], None),
    ],
)
def test_the_interpreter_is_found_from_the_command(venv, tmp_path, monkeypatch, command, expected):
    monkeypatch.chdir(tmp_path / "other")

    found = find_python(command, {"PATH": str(venv)})

    assert os.path.normpath(found) == str(tmp_path / expected if expected else sys.executable)


def test_the_link_of_a_virtual_environment_is_not_followed(tmp_path):
    (tmp_path / "python").symlink_to(sys.executable)

    assert find_python([str(tmp_path / "python"), "x.py"], {}) == tmp_path / "python"


@linux_only
def test_what_is_no_python_is_refused_in_one_line(tmp_path):
    for path in (Path("/bin/true"), tmp_path / "missing"):
        with pytest.raises(BadInput, match="does not run as a Python interpreter") as caught:
            ask(path)
        assert "\n" not in str(caught.value)


def torch_folder(tmp_path, version_file):
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('torch must not be imported')\n")
    (folder / "version.py").write_text(version_file)


@linux_only
@pytest.mark.parametrize(
    ("version_file", "said"),
    [
        (
            "__version__ = '2.9.0+cpu'\ndebug = False\ncuda: Optional[str] = None\nhip = None\n",
            r"PyTorch 2\.9\.0\+cpu of .* is a CPU-only build; .* pip install .*torch",
        ),
        (
            "__version__ = '2.9.0'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.4.1'\n",
            r"PyTorch 2\.9\.0 of .* is a ROCm build",
        ),
        ("__version__ = '2.9.0'\ncuda = '12.8'\nhip = None\n", None),
    ],
)
def test_a_torch_that_is_not_for_cuda_is_named_without_importing_it(
    tmp_path, monkeypatch, version_file, said
):
    torch_folder(tmp_path, version_file)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    interpreter = ask(Path(sys.executable))

    assert interpreter.torch == tmp_path / "torch"
    if said is None:
        interpreter.require_cuda_torch()
        return
    with pytest.raises(MissingRequirement, match=said) as caught:
        build(Path(sys.executable))

    assert "\n" not in str(caught.value)


@linux_only
def test_an_interpreter_without_torch_is_told_how_to_get_it(tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)

    with pytest.raises(MissingRequirement, match=r"has no PyTorch; .* -m pip install torch"):
        build(bare)


@linux_only
def test_a_sitecustomize_that_prints_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("print('welcome', end='')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert ask(Path(sys.executable)).platform == "Linux x86_64"


def test_without_a_compiler_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SIMCARD_CC", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MissingRequirement, match=r"needs a C compiler: install gcc .*ziglang") as caught:
        find_compiler()

    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, GpumemError)
    assert caught.value.exit_code == 2


def test_a_compiler_that_cannot_link_is_passed_over(monkeypatch, tmp_path):
    program(tmp_path / "cc", "#!/bin/sh\nexit 1\n")
    works = program(tmp_path / "clang", "#!/bin/sh\nexit 0\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SIMCARD_CC", raising=False)

    assert find_compiler().argv == (str(works),)


def test_a_compiler_may_be_named(monkeypatch):
    monkeypatch.setenv("SIMCARD_CC", "ccache gcc-13")

    assert find_compiler().argv == ("ccache", "gcc-13")

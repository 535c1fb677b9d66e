"""What import-linter cannot see: what a process really loads, and what old interpreters can parse."""

import ast
import importlib.metadata
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gpumem_tui

ROOT = Path(gpumem_tui.__file__).parent
AGENT = sorted((ROOT / "agent").rglob("*.py"))
THIRD_PARTY = {"torch", "textual", "rich", "pynvml", "psutil", "msgspec", "numpy"}


def loaded_by(code: str) -> set[str]:
    """Top-level third-party modules in a fresh interpreter after some code."""
    script = textwrap.dedent(code) + "\nimport sys; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()) & THIRD_PARTY


def test_imports_go_down_only():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_help_loads_no_third_party_module():
    code = """
        from gpumem_tui.cli import parser
        for verb in ("run", "attach", "runs", "report", "compare", "export", "demo"):
            parser(verb).format_help()
    """

    assert loaded_by(code) == set()


def test_the_agent_loads_nothing_beyond_the_standard_library():
    code = "import gpumem_tui.agent.process, gpumem_tui.agent.inquest, gpumem_tui.hook"

    assert loaded_by(code) == set()


def test_the_live_view_never_loads_torch_or_the_driver_library():
    assert loaded_by("import gpumem_tui.views.tui, gpumem_tui.session") & {"torch", "pynvml"} == set()


def test_a_recording_is_read_without_a_terminal_library():
    views = "plain, gpumem_tui.views.report, gpumem_tui.views.export.tables, gpumem_tui.views.export.trace"

    assert loaded_by(f"import gpumem_tui.session, gpumem_tui.views.{views}") & {"textual", "rich"} == set()


def test_the_keeper_s_own_part_loads_no_driver_library():
    assert loaded_by("import gpumem_tui.keeper") & {"pynvml", "psutil", "textual", "torch"} == set()


@pytest.mark.parametrize("path", AGENT, ids=lambda path: path.name)
def test_the_agent_is_python_3_8(path):
    ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("path", [p for p in AGENT if "site" not in p.parts], ids=lambda path: path.name)
def test_the_agent_s_annotations_are_never_evaluated(path):
    assert "from __future__ import annotations" in path.read_text() or "def " not in path.read_text()


def test_the_agent_says_the_package_s_version():
    from gpumem_tui.agent.process import VERSION

    assert VERSION == gpumem_tui.__version__ == importlib.metadata.version("gpumem-tui")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text()))

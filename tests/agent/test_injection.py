"""The agent comes into a process by the environment alone, in any Python, and changes nothing else."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FAKE_TORCH = """
import sys, types
class Tensor: pass
class Optimizer:
    @staticmethod
    def profile_hook_step(function):
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)
        return wrapper
class Module:
    def _wrapped_call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)
    __call__ = _wrapped_call_impl
nn = types.SimpleNamespace(Module=Module)
optim = types.SimpleNamespace(Optimizer=Optimizer)
def _backward(tensors): pass
autograd = types.SimpleNamespace(backward=_backward)
is_grad_enabled = lambda: True
_C = types.SimpleNamespace()
cuda = types.SimpleNamespace(memory=types.SimpleNamespace())
version = types.SimpleNamespace(cuda=None)
__version__ = "0.fake"
"""
"""As much of torch as the agent touches at import: enough to see it arm itself in any interpreter."""


def interpreters() -> list[str]:
    """Every Python on PATH from 3.8 on, and the one that runs the tests."""
    found = [sys.executable]
    versions = Path.home() / ".pyenv" / "versions"
    for minor in (8, 9, 10, 12, 13):
        named = shutil.which(f"python3.{minor}")
        for path in [*([named] if named else []), *map(str, versions.glob(f"3.{minor}.*/bin/python3"))]:
            if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
                found.append(path)
                break
    return found


@pytest.mark.parametrize("python", interpreters())
def test_it_arms_itself_when_torch_is_imported(agent_run, tmp_path, python):
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    code = """
        import sys
        assert not any("gpumem_tui" in entry for entry in sys.path), sys.path
        import torch
        agent = sys.modules["_gpumem_tui_agent"]
        woven = torch.nn.Module.__call__ is not torch.nn.Module._wrapped_call_impl
        print(agent.monitored.phases is not None, woven)
        class Net(torch.nn.Module):
            def forward(self, x): return x + 1
            def parameters(self): return iter(())
        print(Net()(1), "exec_module" in vars(torch.__spec__.loader))
    """

    # It is no whole torch: what cannot be patched in it is contained, as in a torch of another age.
    done = agent_run.plain(code, python=python, cwd=tmp_path, env={"GPUMEM_TUI_RAISE": ""})

    assert done.stderr == ""
    assert done.stdout.split("\n")[:2] == ["True True", "2 False"]
    assert agent_run.writers() == []


def test_without_torch_nothing_happens(agent_run):
    done = agent_run.plain("print('hello')")

    assert (done.stdout, done.stderr) == ("hello\n", "")
    assert agent_run.writers() == []


def test_the_user_s_own_sitecustomize_still_runs(agent_run, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.mine = __file__")
    env = agent_run.environment({"PYTHONPATH": str(own)})

    done = agent_run.plain("print(mine); import sitecustomize; print(sitecustomize.__file__)", env=env)

    assert done.stdout.split() == [str(own / "sitecustomize.py")] * 2


def test_an_error_in_the_user_s_sitecustomize_is_told_as_python_tells_it(agent_run, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("1 / 0")
    env = agent_run.environment({"PYTHONPATH": str(own)})

    done = agent_run.plain("print('on')", env=env)

    assert done.stdout == "on\n"
    assert "Error in sitecustomize" in done.stderr


def test_looking_torch_up_does_not_import_it_or_disarm(agent_run, tmp_path):
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    code = """
        import importlib.util, sys
        spec = importlib.util.find_spec("torch")
        print(spec.name, "torch" in sys.modules)
        import torch
        print(sys.modules["_gpumem_tui_agent"].monitored.phases is not None)
    """

    done = agent_run.plain(code, cwd=tmp_path, env={"GPUMEM_TUI_RAISE": ""})

    assert done.stdout.split() == ["torch", "False", "True"]


def test_a_torch_that_fails_to_import_fails_as_it_would(agent_run, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart is missing')")

    done = agent_run.plain("import torch", cwd=tmp_path)

    assert "ImportError: libcudart is missing" in done.stderr
    assert "gpumem_tui" not in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("flags", [["-I"], ["-E"], ["-S"]])
def test_an_isolated_python_runs_unmonitored(agent_run, flags):
    done = agent_run.plain("print('hello')", flags=flags)

    assert (done.stdout, done.stderr) == ("hello\n", "")


def test_a_run_directory_that_is_gone_is_no_error(agent_run):
    shutil.rmtree(agent_run.path)

    done = agent_run.plain("print('hello')")

    assert (done.stdout, done.stderr) == ("hello\n", "")

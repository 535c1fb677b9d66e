"""PyTorch, asked in an interpreter of its own: which build, which allocator, how many devices.

The question runs in the workload's Python, ends with it, and never initialises CUDA:
devices are counted through NVML, and nothing is allocated.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from gpumem_tui.records.environment import TorchFacts

_MARK = "gpumem-tui-torch:"

_QUESTION = """
import json, sys
facts = {"python_version": sys.version.split()[0]}
def ask(name, call):
    try:
        facts[name] = call()
    except Exception:
        pass
try:
    import torch
except BaseException as error:
    facts["error"] = "%s: %s" % (type(error).__name__, str(error).strip().split("\\n")[0][:200])
else:
    ask("version", lambda: str(torch.__version__))
    ask("path", lambda: torch.__file__)
    ask("cuda", lambda: torch.version.cuda)
    ask("hip", lambda: torch.version.hip)
    if facts.get("cuda") or facts.get("hip"):
        ask("allocator", lambda: torch.cuda.memory.get_allocator_backend())
        ask("settings", lambda: str(torch._C._accelerator_getAllocatorSettings()) or None)
        if sys.argv[2]:
            ask("devices", lambda: torch.cuda.device_count())
        ask("initialized", lambda: torch.cuda.is_initialized())
print(sys.argv[1] + json.dumps(facts))
"""

PATIENCE_S = 120.0


def ask_torch(python: Path, patience_s: float = PATIENCE_S, *, count: bool = True) -> TorchFacts:
    """Import PyTorch in that interpreter and ask; what goes wrong is in ``error``. Raises nothing.

    Without ``count`` the devices are not counted: a driver that hangs would hold all else up.
    """
    environment = {**os.environ, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    try:
        done = subprocess.run(
            [str(python), "-c", _QUESTION, _MARK, "count" if count else ""],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
            check=False,
        )
    except OSError as error:
        return TorchFacts(str(python), error=f"it does not run: {error.strerror}")
    except subprocess.TimeoutExpired:
        return TorchFacts(str(python), error=f"it has not answered within {patience_s:.0f} s")
    lines = [x for x in done.stdout.decode("utf-8", "replace").splitlines() if x.startswith(_MARK)]
    if not lines:
        return TorchFacts(str(python), error=f"it ended with code {done.returncode} and no answer")
    try:
        facts = msgspec.json.decode(lines[-1].removeprefix(_MARK), type=dict[str, Any])
        return msgspec.convert({**facts, "python": str(python)}, TorchFacts)
    except msgspec.MsgspecError as error:
        return TorchFacts(str(python), error=f"its answer makes no sense: {error}")

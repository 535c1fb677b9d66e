"""The built-in exercise of ``measure``: a small dense network on synthetic inputs, phase by phase.

An ordinary script that names its phases: ``model_load``, ``inputs``, ``cold_forward``,
``warmup``, then as often as asked ``warm_forward`` and, where asked, ``backward`` and
``optimizer``. It measures nothing itself; the monitor that runs it does. It refuses a
CPU: code 2 where this PyTorch finds no GPU.
"""

import argparse
import contextlib
import sys
from collections.abc import Callable

import torch
from torch import nn

import gpumem_tui

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def network(width: int, layers: int, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Feed-forward blocks as in a transformer: width → 4 × width → width, ``layers`` times."""
    blocks: list[nn.Module] = []
    for _ in range(layers):
        up = nn.Linear(width, 4 * width, device=device, dtype=dtype)
        down = nn.Linear(4 * width, width, device=device, dtype=dtype)
        blocks += [up, nn.GELU(), down]
    return nn.Sequential(*blocks)


def main() -> int:
    """Run the exercise; 0, or 2 where there is no GPU to measure."""
    parser = argparse.ArgumentParser()
    for name in ("device", "batch", "context", "width", "layers", "warmup", "repeats", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dtype", choices=DTYPES, required=True)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--optimizer", choices=OPTIMIZERS)
    asked = parser.parse_args()

    if not torch.cuda.is_available():
        print(f"gpumem-tui: torch {torch.__version__} finds no GPU; nothing was measured", file=sys.stderr)
        return 2
    if asked.device >= torch.cuda.device_count():
        seen = torch.cuda.device_count()
        print(f"gpumem-tui: there is no device {asked.device}; PyTorch sees {seen}", file=sys.stderr)
        return 2
    torch.cuda.set_device(asked.device)
    torch.manual_seed(asked.seed)
    device, dtype = torch.device("cuda", asked.device), DTYPES[asked.dtype]
    trains = asked.backward or asked.optimizer is not None

    with gpumem_tui.phase("model_load"):
        model = network(asked.width, asked.layers, device, dtype)
    with gpumem_tui.phase("inputs"):
        x = torch.randn(asked.batch, asked.context, asked.width, device=device, dtype=dtype)
    optimizer = OPTIMIZERS[asked.optimizer](model.parameters(), lr=1e-3) if asked.optimizer else None
    grad = contextlib.nullcontext() if trains else torch.inference_mode()

    with grad:
        with gpumem_tui.phase("cold_forward"):
            y = model(x)
        del y
        with gpumem_tui.phase("warmup"):
            for _ in range(asked.warmup):
                _repeat(model, x, optimizer, trains)
        for _ in range(asked.repeats):
            _repeat(model, x, optimizer, trains, named=True)
    return 0


def _repeat(
    model: nn.Module,
    x: torch.Tensor,
    optimizer: torch.optim.Optimizer | None,
    trains: bool,
    named: bool = False,
) -> None:
    def phase(name: str) -> contextlib.AbstractContextManager[object]:
        return gpumem_tui.phase(name) if named else contextlib.nullcontext()

    with phase("warm_forward"):
        y = model(x)
    if trains:
        with phase("backward"):
            y.float().sum().backward()
    if optimizer is not None:
        with phase("optimizer"):
            optimizer.step()
        optimizer.zero_grad()
    elif trains:
        model.zero_grad()


if __name__ == "__main__":
    sys.exit(main())

"""The demo: a real two-rank fine-tune on two simulated cards, with the troubles that people meet.

``finetune.py`` is an ordinary training script; nothing in it knows of the monitor.
``neighbour.py`` is another user's process that comes to a card while it trains.
"""

from pathlib import Path

SCRIPT = Path(__file__).with_name("finetune.py")
"""The workload, as torchrun takes it."""

EXERCISE = Path(__file__).with_name("exercise.py")
"""The workload of ``measure``."""

RECORDING = Path(__file__).with_name("recording")
"""A recording of this very demo, played where it cannot run."""

DEVICES = "24GiB,24GiB"
KERNEL_US = 1000.0
"""Microseconds a simulated kernel takes: the pace of a person who watches."""

NEIGHBOUR_AFTER_S = 45.0
NEIGHBOUR_BYTES = 6 << 30

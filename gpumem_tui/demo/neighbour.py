"""Another user's process on a simulated card: comes after a while, holds memory, goes when the run has ended.

python -m gpumem_tui.demo.neighbour HOLD DEVICE BYTES DELAY_S KEEPER_PID KEEPER_TICKS
"""

import subprocess
import sys
import time

from gpumem_tui.agent import wire

POLL_S = 0.5


def main(words: list[str]) -> int:
    """Wait, hold, go."""
    hold, device, size, delay, pid, ticks = words
    until = time.monotonic() + float(delay)

    def lives() -> bool:
        return wire.started_ticks(int(pid)) == int(ticks)

    while time.monotonic() < until:
        if not lives():
            return 0
        time.sleep(POLL_S)
    name = "notebook"
    holder = subprocess.Popen(
        [name, device, size, name], executable=hold, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        while lives() and holder.poll() is None:
            time.sleep(POLL_S)
    finally:
        holder.kill()
        holder.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""A view on a scripted run, as a program of its own: ``python live.py --devices 8 --result FILE``.

For tests that need a real terminal, and for looking at the view.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import scripted

from gpumem_tui.views import tui


class MovingFeed(scripted.ScriptedFeed):
    """A run that goes on with the clock, or stands still, or fails on purpose."""

    def __init__(self, devices: int, start: int, *, still: bool, fail: bool, simulate: bool, output: bytes):
        super().__init__(scripted.with_phases(start, devices), output=output)
        self.devices, self.offset, self.still, self.fail, self.simulate = (
            devices,
            start,
            still,
            fail,
            simulate,
        )
        self.began = time.monotonic()
        self.kept = None

    def read(self):
        if self.fail and self.reads >= 1:
            raise RuntimeError("scripted failure")
        self.reads += 1
        if self.still and self.reads > 1:
            return self.kept
        second = self.offset + (0 if self.still else int(time.monotonic() - self.began))
        make = scripted.simulated if self.simulate else scripted.with_phases
        state = make(second, self.devices)
        self.kept = scripted.msgspec.structs.replace(state, output_bytes=len(self.output))
        self.pictures = [self.kept]
        return self.kept


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--start", type=int, default=200)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--theme")
    parser.add_argument("--ascii", action="store_true", default=None)
    parser.add_argument("--still", action="store_true")
    parser.add_argument("--fail", action="store_true")
    parser.add_argument("--low-bandwidth", action="store_true", default=None)
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--result", type=Path)
    args = parser.parse_args()
    bar = b"".join(b"\r 42%%|####      | %d/1000" % n for n in range(1000))
    output = b"\x1b[1;32mloading\x1b[0m weights\r\n" + bar + b"\r\n" + b"epoch 1 loss 0.25\r\n" * 3
    feed = MovingFeed(
        args.devices, args.start, still=args.still, fail=args.fail, simulate=args.simulate, output=output
    )
    report_dir = args.result.parent if args.result else None
    result = tui.run_app(
        feed,
        theme=args.theme,
        ascii=args.ascii,
        interval_s=args.interval,
        low_bandwidth=args.low_bandwidth,
        report_dir=report_dir,
    )
    if args.result:
        args.result.write_text(f"{result.left.value} {[stop.value for stop in feed.stopped]}")
    if result.sentence:
        print(result.sentence, file=sys.stderr)
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())

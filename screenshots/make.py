"""Write the pictures of this folder, from a recording and never by hand.

    python screenshots/make.py record      run the demo (two minutes) and keep its recording in the package
    python screenshots/make.py             draw every picture from that recording, as SVG and PNG

Needs what the extra ``test`` brings: resvg-py, and Pillow for the palette of a PNG. The
recording is cleaned of names and paths of the machine that made it.
"""

import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from gpumem_tui import demo
from gpumem_tui.journal.rundir import RunDirectory, find
from gpumem_tui.session import Moment, Recording
from gpumem_tui.views.raster import raster
from gpumem_tui.views.tui.picture import picture

HERE = Path(__file__).parent
ROOT = HERE.parent


PICTURES = {
    # name: (seconds into the run or None for its end, columns, rows, theme, screen, keys)
    "overview": (100.0, 120, 38, "dark", "overview", ()),
    "overview-small": (100.0, 80, 24, "dark", "overview", ()),
    "overview-light": (100.0, 120, 38, "light", "overview", ()),
    "device": (118.0, 120, 38, "dark", "device", ("minus", "left", "left")),
    "phases": (118.0, 160, 40, "dark", "phases", ()),
    "matrix": (100.0, 120, 20, "dark", "matrix", ()),
    "failure": (None, 120, 38, "dark", "failure", ()),
    "failed": (None, 120, 38, "dark", "overview", ()),
    "output": (None, 100, 30, "dark", "output", ()),
    "map": (None, 100, 24, "dark", "map", ()),
}


async def draw(name: str) -> None:
    """One picture."""
    seconds, columns, rows, theme, place, keys = PICTURES[name]
    run = RunDirectory(demo.RECORDING)
    feed = Recording(run) if seconds is None else Moment(run, seconds)
    svg = await picture(feed, place, (columns, rows), theme=theme, keys=keys)
    (HERE / f"{name}.svg").write_text(svg)
    pixels = Image.open(io.BytesIO(raster(svg))).convert("RGB")
    few = pixels.quantize(255, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(HERE / f"{name}.png", optimize=True)
    sizes = [(HERE / f"{name}.{kind}").stat().st_size for kind in ("svg", "png")]
    print(f"{name}  {columns}×{rows}  {sizes[0]:,} and {sizes[1]:,} bytes")


def record() -> None:
    """Run the demo on a terminal of its own and keep what it records."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "GPUMEM_TUI_HOME": home}
        subprocess.run(
            [sys.executable, "-m", "gpumem_tui", "demo", "--detach"], env=environment, check=True, cwd=ROOT
        )
        run = find("latest", environment)
        recording = Recording(run)
        while (state := recording.read()).facts.ending is None or state.facts.recorder.value == "running":
            time.sleep(1)
        keep(run)


def keep(run: RunDirectory) -> None:
    """Copy a recording into the package, without what a reader does not need and nobody should see."""
    target = demo.RECORDING
    shutil.rmtree(target, ignore_errors=True)
    (target / "journal").mkdir(parents=True)
    (target / "failures").mkdir()
    facts = json.loads(run.run_file.read_text())
    words = [
        (str(ROOT), "/home/you/gpumem-tui"),
        (sys.prefix, "/home/you/venv"),
        (sys.base_prefix, "/usr"),
        (run.name, "demo"),
        (str(run.path.parent.parent), "/home/you/.local/state/gpumem-tui"),
    ]
    names = [(facts["host"], "node"), (facts["user"], "you"), (facts["boot"] or "none", "recorded")]

    def clean(text: str) -> str:
        for old, new in words:
            text = text.replace(old, new)
        for old, new in names:
            text = re.sub(rf'"{re.escape(old)}"', f'"{new}"', text)
        return text

    facts["recorded"] = True
    (target / "run.json").write_text(clean(json.dumps(facts, indent=2)) + "\n")
    for folder, pattern in (("journal", "*.jsonl"), ("failures", "*.json")):
        for path in (run.path / folder).glob(pattern):
            (target / folder / path.name).write_text(clean(path.read_text()))
    output = clean(run.output_log.read_bytes().decode("utf-8", "replace"))
    (target / "output.log").write_text(output, newline="")
    print(f"{sum(p.stat().st_size for p in target.rglob('*') if p.is_file()):,} bytes in {target.name}")


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        record()
    for each in PICTURES:
        asyncio.run(draw(each))

"""Foresight against real cards: runs every row of peaks.csv through the product, and writes results.csv.

    python tests/foresight/table.py [MODEL…]       # all rows: ten minutes on two cores
    python tests/foresight/table.py --show         # only the table of results.csv, with its errors
    python tests/foresight/table.py --rows FILE    # other rows (model,batch_size,peak_mib), shown only

Needs timm (README.md says which). How constants are fitted and what they are worth on rows that
they were not fitted on is in crossvalidation.py.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from gpumem_tui.analysis.foresight import Foresight, foresee
from gpumem_tui.journal.simstate import read_peaks
from gpumem_tui.records.simpeak import PeakCounts

HERE = Path(__file__).parent
PRODUCT = [sys.executable, "-m", "gpumem_tui"]
CARD = ("--simulate", "40GiB", "--sim-set", "compute_capability=8.0")
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """One peak of a real card, and what the simulated one counted. Sizes in MiB."""

    model: str
    family: str
    """The module of timm that defines the model: what relatives have in common."""
    batch: int
    real_mib: int
    used_mib: int
    outside_mib: int
    convolution_mib: int
    grouped: int
    refused: int
    """Where it is not 0, memory ran out on the simulated card: there is no figure."""
    seconds: float

    @property
    def told(self) -> Foresight:
        """What the product says of these counts."""
        peak = PeakCounts(
            index=0,
            total_bytes=40 << 30,
            driver_reserved_bytes=512 * MIB,
            used_bytes=self.used_mib * MIB,
            outside_bytes=self.outside_mib * MIB,
            processes=1,
            convolution_bytes=self.convolution_mib * MIB,
            refused=self.refused,
            invented_reads=0,
            grouped_plans=self.grouped,
        )
        return foresee(peak)

    @property
    def error(self) -> float:
        """Of the point, as a share of the real peak."""
        return self.told.point_bytes / MIB / self.real_mib - 1

    @property
    def short(self) -> bool:
        """Whether the real peak was above the safe bound."""
        return self.real_mib * MIB > self.told.bound_bytes

    @property
    def room(self) -> float:
        """By how much the bound is above the real peak, as a share of it."""
        return self.told.bound_bytes / MIB / self.real_mib - 1


def real_rows(path: Path = HERE / "peaks.csv") -> list[tuple[str, int, int]]:
    """(model, batch size, peak in MiB) of each row."""
    with path.open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [(r["model"], int(r["batch_size"]), int(r["peak_mib"])) for r in rows]


def results() -> list[Row]:
    with (HERE / "results.csv").open() as file:
        return [Row(**{f.name: f.type(r[f.name]) for f in fields(Row)}) for r in csv.DictReader(file)]


def family_of(model: str) -> str:
    from timm.models import model_entrypoint

    return model_entrypoint(model).__module__.rpartition(".")[2]


def run(model: str, batch: int, real_mib: int) -> Row:
    """Run the row's step on a simulated card, as a user would."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "GPUMEM_TUI_HOME": home}
        begun = time.monotonic()
        command = [*PRODUCT, "run", *CARD, str(HERE / "step.py"), model, str(batch)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        seconds = round(time.monotonic() - begun, 1)
        (state,) = Path(home).glob("runs/*/simcard.state")
        (peak,) = read_peaks(state)
    assert not ended.returncode or peak.refused, ended.stderr[-2000:]
    used, outside, convolution = (
        size // MIB for size in (peak.used_bytes, peak.outside_bytes, peak.convolution_bytes)
    )
    refused = peak.refused if ended.returncode else 0
    return Row(
        *(model, family_of(model), batch, real_mib, used, outside, convolution),
        *(peak.grouped_plans, refused, seconds),
    )


def write(rows: Iterable[Row]) -> None:
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([each.name for each in fields(Row)])
        writer.writerows([getattr(row, each.name) for each in fields(Row)] for row in rows)


def show(rows: list[Row]) -> None:
    print(f"{'model':38}{'batch':>5}{'real':>7}{'point':>7}{'bound':>7} MiB   error  seconds")
    for row in sorted(rows, key=lambda r: (r.refused > 0, r.error)):
        point, bound = row.told.point_bytes // MIB, row.told.bound_bytes // MIB
        words = "ran out" if row.refused else f"{row.error:+7.1%}"
        mark = "  above the bound" if row.short and not row.refused else ""
        sizes = f"{row.real_mib:7}{point:7}{bound:7}"
        print(f"{row.model:38}{row.batch:5}{sizes}     {words:>7} {row.seconds:7.1f}{mark}")


def main(words: list[str]) -> None:
    if words == ["--show"]:
        show(results())
        return
    others = words[:1] == ["--rows"]
    asked = real_rows(Path(words[1])) if others else real_rows()
    found = []
    for model, batch, real_mib in asked:
        if others or not words or model in words:
            found.append(run(model, batch, real_mib))
            print(json.dumps({each.name: getattr(found[-1], each.name) for each in fields(Row)}), flush=True)
    if not words:
        write(found)
    show(found)


if __name__ == "__main__":
    main(sys.argv[1:])

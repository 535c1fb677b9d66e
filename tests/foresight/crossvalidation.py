"""Fits the constants of gpumem_tui/analysis/foresight.py, and says what they are worth on other rows.

    python tests/foresight/crossvalidation.py

Works on results.csv alone, in a second. A *fold* leaves out whole families (the module of timm
that defines a model): constants are fitted on all other families, then asked about those left
out. Nothing that a figure "out of fold" rests on was fitted on a relative of its row.
"""

import functools
import math
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from table import MIB, Row, results

from gpumem_tui.analysis import foresight

TAIL, BEYOND = 0.25, 0.005
"""The bound is where an exponential tail, fitted to the highest quarter of scores, leaves 1 in 200."""
FOLDS, REPEATS = 5, 20
CONTEXT_MIB = 384
"""What a context takes on the card of the rows, before any kernel: gpumem_tui/simcard/cards.py."""
KERNELS_MIB = range(1100, 1501, 20)
PLANS = [quarter / 4 for quarter in range(13)]


@dataclass(frozen=True)
class Point:
    """The constants of the point."""

    kernels_mib: int
    plans: float

    def mib(self, row: Row) -> float:
        pytorch_mib = row.used_mib - row.outside_mib
        return pytorch_mib + CONTEXT_MIB + self.kernels_mib + self.plans * row.convolution_mib


@dataclass(frozen=True)
class Constants:
    """What is fitted, in the units of the product."""

    point: Point
    spreads: float
    grouped_mib: int

    def bound_mib(self, row: Row) -> float:
        grouped = self.grouped_mib if row.grouped else 0
        return self.point.mib(row) + self.spreads * spread_mib(row) + grouped


def spread_mib(row: Row) -> float:
    """The unit in which the bound is above the point."""
    return foresight.spread_bytes((row.used_mib - row.outside_mib) * MIB, row.convolution_mib * MIB) / MIB


def error(row: Row, point: Point) -> float:
    return point.mib(row) / row.real_mib - 1


@functools.cache
def fit_point(rows: tuple[Row, ...]) -> Point:
    """Least trimmed errors: the mean of the best four fifths of absolute relative errors.

    Robust where up to a fifth of the rows are off for other reasons, as recordings of runs that failed.
    """

    kept = len(rows) * 4 // 5
    best, best_loss = Point(0, 0.0), math.inf
    for plans in PLANS:
        without = [(Point(0, plans).mib(row) - row.real_mib, row.real_mib) for row in rows]
        for kernels in KERNELS_MIB:
            loss = sum(sorted(abs(miss + kernels) / real for miss, real in without)[:kept])
            if loss < best_loss:
                best, best_loss = Point(kernels, plans), loss
    return best


def tail_quantile(scores: Iterable[float]) -> float:
    """What a score is above once in 1 / BEYOND times, by an exponential tail (peaks over a threshold)."""
    ordered = sorted(scores)
    threshold = ordered[int(len(ordered) * (1 - TAIL))]
    excess = statistics.mean(score - threshold for score in ordered if score > threshold)
    return threshold + excess * math.log(TAIL / BEYOND)


def families(rows: Iterable[Row]) -> list[str]:
    return sorted({row.family for row in rows})


def fit(rows: Sequence[Row]) -> Constants:
    """Constants for these rows.

    The bound rests on residuals of points that were fitted without the row's family. Rows with
    grouped convolutions are apart: what the worst of them needs beyond the bound is added for such.
    """
    beyond = []
    for name in families(rows):
        others, own = split(rows, [name])
        point = fit_point(tuple(others))
        beyond += [(row, row.real_mib - point.mib(row)) for row in own]
    spreads = round(tail_quantile(need / spread_mib(row) for row, need in beyond if not row.grouped), 1)
    alone = Constants(fit_point(tuple(rows)), spreads, 0)
    needs = [row.real_mib - alone.bound_mib(row) for row in rows if row.grouped]
    return Constants(alone.point, spreads, math.ceil(max([0.0, *needs])))


def split(rows: Sequence[Row], families: Iterable[str]) -> tuple[list[Row], list[Row]]:
    """(rows of other families, rows of these)."""
    left_out = set(families)
    return [r for r in rows if r.family not in left_out], [r for r in rows if r.family in left_out]


def folds(rows: Sequence[Row], seed: int) -> Iterator[tuple[list[Row], list[Row]]]:
    names = families(rows)
    random.Random(seed).shuffle(names)
    for number in range(FOLDS):
        yield split(rows, names[number::FOLDS])


@dataclass(frozen=True)
class Told:
    """What constants that were fitted without a row's family say of it."""

    row: Row
    error: float
    room: float
    """Of the bound above the real peak, as a share of it; negative where the bound is broken."""


def told(parts: Iterable[tuple[list[Row], list[Row]]]) -> list[Told]:
    found = []
    for known, asked in parts:
        constants = fit(known)
        for row in asked:
            room = constants.bound_mib(row) / row.real_mib - 1
            found.append(Told(row, error(row, constants.point), room))
    return found


def leave_one_family_out(rows: Sequence[Row]) -> list[Told]:
    return told(split(rows, [name]) for name in families(rows))


def summary(said: Sequence[Told]) -> dict[str, float]:
    return {
        "median error": statistics.median(abs(each.error) for each in said),
        "share above the bound": statistics.mean(each.room < 0 for each in said),
        "median room": statistics.median(each.room for each in said),
    }


def finished() -> list[Row]:
    """The rows whose step did not run out of memory on the simulated card."""
    return [row for row in results() if not row.refused]


def main() -> None:
    rows = finished()
    print("fitted on all rows:", fit(rows))
    said = leave_one_family_out(rows)
    for each in sorted(said, key=lambda t: t.error):
        print(f"  {each.row.model:38}{each.row.family:24}{each.error:+7.1%}{each.room:+7.1%}")
    print("one family left out:", {name: f"{value:.1%}" for name, value in summary(said).items()})
    again = [summary(told(folds(rows, seed))) for seed in range(REPEATS)]
    for name in again[0]:
        values = sorted(each[name] for each in again)
        low, middle, high = values[0], values[len(values) // 2], values[-1]
        print(f"{FOLDS} folds, {REPEATS} times: {name} {middle:.1%} ({low:.1%} to {high:.1%})")


if __name__ == "__main__":
    main()

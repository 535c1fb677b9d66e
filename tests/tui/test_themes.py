"""The themes: what is read stands out, and the ledger's terms stay apart for everybody's eyes."""

import pytest

from gpumem_tui.views.tui import THEMES
from gpumem_tui.views.tui.themes import PALETTES

READ = ("text", "dim", "title", "strong", "phase", "missing", "remark", "warning", "failure", "key")
TERMS = ("allocated", "cached", "outside", "others", "free")
APART = 11
"""Distance in CIE L*a*b* from which on two colours side by side are told apart at a glance."""

BLIND = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""Machado, Oliveira and Fernandes (2009), severity 1, on linear light."""


def linear(colour: str) -> list[float]:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def weighted(weights, light) -> float:
    return sum(weight * part for weight, part in zip(weights, light, strict=True))


def contrast(one: str, other: str) -> float:
    levels = [weighted((0.2126, 0.7152, 0.0722), linear(colour)) for colour in (one, other)]
    return (max(levels) + 0.05) / (min(levels) + 0.05)


def seen(colour: str, kind: str) -> tuple[float, float, float]:
    """A colour as CIE L*a*b*, as somebody with that colour blindness sees it."""
    light = [max(0.0, weighted(row, linear(colour))) for row in BLIND[kind]]
    x = weighted((0.4124, 0.3576, 0.1805), light) / 0.9505
    y = weighted((0.2126, 0.7152, 0.0722), light)
    z = weighted((0.0193, 0.1192, 0.9505), light) / 1.089
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def distance(one: str, other: str, kind: str) -> float:
    pairs = zip(seen(one, kind), seen(other, kind), strict=True)
    return sum((a - b) ** 2 for a, b in pairs) ** 0.5


def test_every_theme_that_is_offered_exists_and_has_every_role():
    assert list(THEMES) == list(PALETTES)
    for palette in PALETTES.values():
        for role in READ + TERMS:
            assert palette.style(role)


@pytest.mark.parametrize(("name", "least"), [("dark", 4.5), ("light", 4.5), ("safe", 4.5), ("contrast", 7.0)])
def test_what_is_read_stands_out_from_its_ground(name, least):
    palette = PALETTES[name]
    ratios = {role: contrast(palette.colour(role), palette.background) for role in READ}

    assert {role: round(ratio, 1) for role, ratio in ratios.items() if ratio < least} == {}


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("name", ["dark", "light", "safe"])
def test_the_terms_of_the_ledger_stay_apart_for_every_colour_blindness(name, kind):
    colour = PALETTES[name].colour
    pairs = [(one, other) for n, one in enumerate(TERMS) for other in TERMS[n + 1 :]]
    distances = {pair: distance(colour(pair[0]), colour(pair[1]), kind) for pair in pairs}

    assert {pair: round(far) for pair, far in distances.items() if far < APART} == {}


def test_what_a_chart_draws_side_by_side_has_a_colour_of_its_own_where_a_terminal_has_few():
    colour = PALETTES["ansi"].colour
    levels = [colour(role) for role in ("allocated", "swing", "cached", "used")]
    phases = [colour(role) for role in ("steps", "forward", "backward", "update", "eval", "load")]

    assert len({*levels}) == len(levels)
    assert len({*phases}) == len(phases)
    assert colour("allocated") not in phases  # which stand right below it

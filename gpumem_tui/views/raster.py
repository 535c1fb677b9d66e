"""A picture in pixels: an SVG of ours as a PNG. Needs the extra ``png``."""

from gpumem_tui.errors import MissingRequirement
from gpumem_tui.views.shapes import FAMILIES

_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="24" height="24">'
    f'<text y="20" font-size="20" font-family="{FAMILIES}">M</text></svg>'
)
"""In the fonts of the pictures: the one that a machine has is seldom what it calls monospace."""


def require_raster() -> None:
    """Before work is done for it. Raises :class:`MissingRequirement`: no extra, or no font."""
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise MissingRequirement(
            "PNG needs resvg-py; install it with: pip install 'gpumem-tui[png]', or write an SVG"
        ) from None
    if svg_to_bytes(_LETTER) == svg_to_bytes(_LETTER, skip_system_fonts=True):
        raise MissingRequirement(
            "PNG needs a font, and this machine has none; install one (such as fonts-dejavu), or write an SVG"
        )


def raster(svg: str) -> bytes:
    """The bytes of a PNG, a pixel for each of the SVG's. Raises :class:`MissingRequirement`."""
    require_raster()
    from resvg_py import svg_to_bytes

    return bytes(svg_to_bytes(svg))

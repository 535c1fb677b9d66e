"""``screenshot``: a screen of the view on a recording, as an SVG or PNG file."""

import argparse
import re

_EPILOG = """\
  gpumem-tui screenshot --screen failure -o failure.svg
  gpumem-tui screenshot my-run --screen overview --size 160x50 --theme light -o big.png

A run that goes on is drawn as it stands. A file is never overwritten; without one, the
picture goes to standard output. PNG needs: pip install 'gpumem-tui[png]'."""

FORMATS = ("svg", "png")


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    from gpumem_tui.views.tui import SCREENS, THEMES

    parser.epilog = _EPILOG
    add = parser.add_argument
    add(
        "run", nargs="?", default="latest", help="name, unique start of a name, or path (default: the latest)"
    )
    add("--screen", choices=SCREENS, default="overview", help="which screen (default: overview)")
    add("--size", default="120x36", metavar="COLUMNSxROWS", help="of the terminal (default 120x36)")
    add("--theme", choices=tuple(THEMES), default="dark", help="colours (default dark)")
    add("--ascii", action="store_true", help="draw with ASCII only")
    add("--at", type=float, default=None, metavar="S", help="seconds after the start (default: as it stands)")
    add("-o", "--output", metavar="FILE", help="write to a new file instead of standard output")
    add("--format", choices=FORMATS, default=None, help="default: by the ending of FILE, else svg")


def run(arguments: argparse.Namespace) -> int:
    """Draw it."""
    import asyncio

    from gpumem_tui.cli.newfile import new_file
    from gpumem_tui.errors import BadInput
    from gpumem_tui.journal import rundir
    from gpumem_tui.session import Moment, Recording
    from gpumem_tui.views.raster import raster, require_raster
    from gpumem_tui.views.tui.picture import picture

    size = parse_size(arguments.size)
    if arguments.at is not None and not 0 <= arguments.at < 1e9:
        raise BadInput(f"--at {arguments.at:g} is no moment of a run; give seconds after its start")
    png = format_of(arguments.output, arguments.format) == "png"
    if png:
        require_raster()
    found = rundir.find(arguments.run)
    feed = Recording(found) if arguments.at is None else Moment(found, arguments.at)
    feed.read()  # a recording that cannot be read is one line
    drawn = asyncio.run(picture(feed, arguments.screen, size, theme=arguments.theme, ascii=arguments.ascii))
    with new_file(arguments.output) as file:
        file.write(raster(drawn) if png else drawn.encode())
    return 0


def format_of(file: str | None, wanted: str | None) -> str:
    """One of :data:`FORMATS`: the one that is asked for, else the one that the file's name ends in."""
    ending = "" if file is None else file.lower().rpartition(".")[2]
    return wanted or (ending if ending in FORMATS else FORMATS[0])


def parse_size(text: str) -> tuple[int, int]:
    """``120x36`` → (120, 36). Raises :class:`BadInput` with what would have been understood."""
    from gpumem_tui.errors import BadInput

    match = re.fullmatch(r"(\d{1,4})[x×](\d{1,4})", text.strip())
    columns, rows = (int(match[1]), int(match[2])) if match else (0, 0)
    if not (20 <= columns <= 500 and 5 <= rows <= 200):
        raise BadInput(f"--size {text!r} is not understood; write 120x36, from 20x5 to 500x200")
    return columns, rows

"""The driver's view as plain text: what ``top --once`` prints."""

from gpumem_tui.analysis.family import flat, forest
from gpumem_tui.analysis.top import TopState, ordered
from gpumem_tui.views import toppanels
from gpumem_tui.views.text import Line, Span, cut, plain, to_ascii


def render(
    state: TopState, *, cells: int = 100, ascii: bool = False, sort: str = "device", tree: bool = False
) -> str:
    """The whole picture in lines of at most ``cells`` cells, ending with a newline."""
    cells = max(40, cells)
    lines: list[Line] = [toppanels.header(state, cells, dated=bool(state.devices))]
    if state.devices:
        head, blocks = toppanels.device_table(state, cells)
        lines += [(), *head, *(line for block in blocks for line in block)]
        lines.append((Span(" GiB; used is total − free − driver-reserved", "dim"),))
        lines += toppanels.remark_lines(state, cells)
        lines.append(())
        if state.processes:
            shown = ordered(state.processes, sort)
            branches = forest(shown) if tree else flat(shown)
            title, rows = toppanels.process_table(state, branches, cells, watched=False)
            lines += [title, *rows]
        else:
            lines += [(Span(" processes"),), toppanels.nothing_line(state, cells)]
    texts = [cut(plain(line), cells).rstrip() for line in lines]
    return "".join(f"{to_ascii(text) if ascii else text}\n" for text in texts)

"""The seconds before a failure as the Failure screen draws them: levels and phases up to it.

Draws as every chart does (``views.chart``), to the failure in the last column; which
stretch that is, is said by ``views.before``.
"""

from gpumem_tui.analysis.failurestate import FailureState
from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import before, chart, strokes
from gpumem_tui.views.text import Line, Span, fit

ROWS = 7
"""Plot, phases and axis."""


def past(state: RunState, failure: FailureState, cells: int) -> tuple[str, list[Line]]:
    """Title and rows; no rows where its device is not known, or nothing was read of it by then."""
    title = before.title(state, failure)
    columns = cells - chart.GUTTER
    device = before.device_of(state, failure)
    if device is None or columns < 1:
        return title, []
    view = before.window(state, failure, columns)
    drawing = chart.plot(
        device, state, view, until_ns=failure.t_ns, cursor_ns=None, style="texture", latest=state
    )
    levels = (*drawing.used, *drawing.reserved, *drawing.allocated)
    if all(column is None for column in levels):
        return title, []
    body = chart.draw(drawing, state, ROWS, style="texture", live=False, known=strokes.Rows())
    key: Line = (Span(" " * chart.GUTTER), *chart.legend(device))
    return title, [fit(line, cells) for line in (*body, key)]

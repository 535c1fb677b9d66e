"""The seconds before a failure on its device: levels and phases up to the failing allocation.

Owns which stretch is shown; draws as every chart does (``views.chart``), to the failure
in the last column. Nothing that came after it is looked at, and no reading is made up.
"""

from gpumem_tui.analysis.failurestate import FailureState
from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import chart, strokes
from gpumem_tui.views.text import Line, Span, fit
from gpumem_tui.views.timeline import SECOND_NS, Window, length

LONGEST_S = 30
"""So much is shown, or all since the run's start where that is less."""

ROWS = 7
"""Plot, phases and axis."""


def past(state: RunState, failure: FailureState, cells: int) -> tuple[str, list[Line]]:
    """Title and rows; no rows where its device is not known, or nothing was read of it by then."""
    span_ns = min(LONGEST_S * SECOND_NS, max(SECOND_NS, failure.t_ns - state.facts.started_ns))
    title = f"the last {length(round(span_ns / SECOND_NS))} before it"
    columns = cells - chart.GUTTER
    if failure.device is None or failure.device >= len(state.devices) or columns < 1:
        return title, []
    device = state.devices[failure.device]
    column_ns = max(1, -(-span_ns // columns))
    view = Window(failure.t_ns - (columns - 1) * column_ns, column_ns, columns)
    drawing = chart.plot(
        device, state, view, until_ns=failure.t_ns, cursor_ns=None, style="texture", latest=state
    )
    levels = (*drawing.used, *drawing.reserved, *drawing.allocated)
    if all(column is None for column in levels):
        return title, []
    body = chart.draw(drawing, state, ROWS, style="texture", live=False, known=strokes.Rows())
    key: Line = (Span(" " * chart.GUTTER), *chart.legend(device))
    return title, [fit(line, cells) for line in (*body, key)]

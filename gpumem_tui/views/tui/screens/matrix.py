"""Ranks × GPUs: who holds what on which card, since when, and what does not belong there."""

from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import matrixpanels
from gpumem_tui.views.matrix import Matrix, cell_sentence, matrix
from gpumem_tui.views.prose import wrapped
from gpumem_tui.views.text import Line, Span, width
from gpumem_tui.views.tui.screens.view import View
from gpumem_tui.views.tui.widgets.panel import Panel


class Table(Panel):
    """The rows; a click chooses the cell under the pointer."""

    def on_click(self, event: events.Click) -> None:
        """Choose a cell."""
        screen = self.parent
        if isinstance(screen, MatrixScreen) and event.y > len(self._head):
            screen.choose_at(event.y - 1 - len(self._head) + self._first, event.x)


class MatrixScreen(View, Container):
    """The matrix above, what stands out and the chosen cell below it."""

    def __init__(self) -> None:
        super().__init__(id="matrix")
        self._table = Table("ranks × GPUs", id="cells")
        self._table.focused_panel = True
        self._notes = Panel("what stands out", id="cellnotes")
        self._pid: int | None = None
        """Process of the chosen row."""
        self._state: RunState | None = None
        self._matrix: Matrix | None = None
        self._grid: matrixpanels.Grid | None = None

    def compose(self) -> ComposeResult:
        """Two panels, one below the other."""
        yield self._table
        yield self._notes

    def show_state(self, state: RunState) -> None:
        """Draw a picture: heights first, and contents once they stand."""
        self._state = state
        cells, height = self.size.width, self.size.height
        if not cells or not height:
            return
        made = self._matrix = matrix(state, self.monitor.filter_word)
        notes = self._note_lines(made, state, cells)
        least = min(1 + len(notes), 4) if height >= 8 else 0
        above = min(height - least, 2 + len(made.rows))
        below = height - above if least else 0
        moved = False
        for panel, rows in ((self._table, above), (self._notes, below)):
            if panel.size.height != rows or panel.display != bool(rows):
                panel.display = bool(rows)
                panel.styles.height = rows
                moved = True
        if moved:
            self.call_after_refresh(self._fill, made, state)
        else:
            self._fill(made, state)

    def _chosen(self, made: Matrix) -> tuple[int, int]:
        """(row, card) of the marked cell."""
        row = next((n for n, each in enumerate(made.rows) if each.pid == self._pid), 0)
        return row, max(0, min(self.monitor.selected, len(made.heads) - 1))

    def _note_lines(self, made: Matrix, state: RunState, cells: int) -> list[Line]:
        remarks = matrixpanels.remark_lines(made.remarks, cells)
        if not made.rows or not made.heads:
            return remarks
        number, place = self._chosen(made)
        row = made.rows[number]
        told = cell_sentence(row, place, made, state)
        beside = f"{told}; {row.says.replace('  ', ', ')}"
        if row.says and 3 + width(beside) <= cells:
            return [*wrapped(beside, cells, "strong", first=" ▸ "), *remarks]
        says = wrapped(row.says, cells, "dim", first="   ") if row.says else []
        return [*wrapped(told, cells, "strong", first=" ▸ "), *remarks, *says]

    def _fill(self, made: Matrix, state: RunState) -> None:
        cells = self.size.width
        chosen = self._chosen(made) if made.rows and made.heads else None
        drawn = self._grid = matrixpanels.grid(made, state, cells, chosen)
        hidden = len(made.heads) - drawn.shown
        more = f"  {hidden} more GPUs: tab" if hidden > 0 else ""
        if self.monitor.filter_word:
            more += f"  with “{self.monitor.filter_word}”"
        self._table.key = (Span(" "), *matrixpanels.legend(made, drawn.column), Span(more, "title"))
        self._table.show_rows(drawn.rows, [drawn.head])
        if chosen is not None:
            self._table.keep_in_view(chosen[0])
        if self._notes.display:
            self._notes.show_rows(self._note_lines(made, state, cells))

    def on_resize(self) -> None:
        """Draw again for the new size."""
        if self._state is not None:
            self.show_state(self._state)

    def choose_at(self, row: int, x: int) -> None:
        """Choose the cell of a row at a place of the screen."""
        if self._matrix is None or self._grid is None or not 0 <= row < len(self._matrix.rows):
            return
        self._pid = self._matrix.rows[row].pid
        place = self._grid.place_at(x)
        if place is not None:
            self.monitor.select_device(place)
        elif self._state is not None:
            self.show_state(self._state)

    def selected_text(self) -> str:
        """The chosen cell in words."""
        made, state = self._matrix, self._state
        if made is None or state is None or not made.rows or not made.heads:
            return ""
        row, place = self._chosen(made)
        return cell_sentence(made.rows[row], place, made, state)

    def next_panel(self, step: int) -> None:
        """The next card."""
        if self._matrix is not None and self._matrix.heads:
            self.monitor.select_device((self.monitor.selected + step) % len(self._matrix.heads))

    def move(self, step: int) -> None:
        """The next row."""
        if self._matrix is None or not self._matrix.rows or self._state is None:
            return
        row = max(0, min(self._chosen(self._matrix)[0] + step, len(self._matrix.rows) - 1))
        self._pid = self._matrix.rows[row].pid
        self.show_state(self._state)

    def move_page(self, step: int) -> None:
        """A page of rows."""
        self.move(step * self._table.page())

    def move_end(self, step: int) -> None:
        """The first or the last row."""
        self.move(step * 1_000_000)

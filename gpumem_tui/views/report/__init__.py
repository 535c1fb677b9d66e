"""A run as a sheet that one can hand to a colleague: what was computed, observed and assumed.

``sheet_of`` makes one :class:`Sheet` of a ``RunState``; ``text``, ``markdown`` and ``html``
write it down. Words and order are the same in all of them.
"""

from gpumem_tui.views.report.build import sheet_of
from gpumem_tui.views.report.sheet import Sheet

__all__ = ["Sheet", "sheet_of"]

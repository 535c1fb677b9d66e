"""What an attempt that ran out of memory, and was caught, had made and nobody has given back.

Told by what was live when its phase began and the least that has been live since. Refuses
to say who holds it.
"""

from collections.abc import Sequence

from gpumem_tui import records
from gpumem_tui.analysis.findings import Amount, Kept
from gpumem_tui.session.course import RankCourse
from gpumem_tui.session.echoes import Failed
from gpumem_tui.session.rank import RankModel


def kept_since(
    failed: Failed, past: Sequence[Failed], course: RankCourse, model: RankModel, ordinal: int
) -> Kept | None:
    """Of the last attempt before ``failed`` on that device; None where that is not told, or nothing."""
    before = [
        each.line
        for each in past
        if each.who == failed.who and isinstance(each.line, records.Failure)
        and each.line.ordinal == ordinal and each.line.t_ns < failed.line.t_ns
    ]  # fmt: skip
    last = max(before, key=lambda line: line.t_ns, default=None)
    if last is None or not last.phase:
        return None
    phase = last.phase.partition(" > ")[0]
    if phase == "optimizer":  # what its first step makes is to stay
        return None
    start = course.started(phase, ordinal, last.t_ns)
    least = model.device(ordinal).least_between(last.t_ns, failed.line.t_ns)
    if start is None or least is None or least <= start:
        return None
    amount = Amount.exact(least - start, "the least allocated since − when its phase began")
    return Kept(amount, (failed.line.t_ns - last.t_ns) / 1e9, phase)

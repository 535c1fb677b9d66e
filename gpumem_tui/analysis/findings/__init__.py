"""What the numbers of one failure say: findings, each with its evidence, a check and the next trial.

Pure rules over a :class:`Situation`, whoever made it: a message in a log, or the
recording of a run. The first finding is the verdict; "unknown" is one.
"""

from gpumem_tui.analysis.findings.amounts import Amount
from gpumem_tui.analysis.findings.diagnose import diagnose
from gpumem_tui.analysis.findings.finding import Evidence, Finding, Strength, Verdict
from gpumem_tui.analysis.findings.situation import (
    Growth,
    Holes,
    Host,
    Kept,
    Kind,
    Lost,
    Neighbour,
    Situation,
    Training,
    Trend,
    Who,
)

__all__ = [
    "Amount",
    "Evidence",
    "Finding",
    "Growth",
    "Holes",
    "Host",
    "Kept",
    "Kind",
    "Lost",
    "Neighbour",
    "Situation",
    "Strength",
    "Training",
    "Trend",
    "Verdict",
    "Who",
    "diagnose",
]

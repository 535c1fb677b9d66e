"""The engine: which rules see a situation, and in which order their findings stand.

A first verdict is given as supported only where one explanation is left. Two that
would each do, figures that contradict each other, and evidence that is missing make
"unknown", followed by what is possible.
"""

from gpumem_tui.analysis.findings import device, elsewhere, phases, recorded
from gpumem_tui.analysis.findings.finding import Finding, Strength, Verdict
from gpumem_tui.analysis.findings.situation import Kind, Situation

_WITHOUT_PHASE = frozenset(
    {Kind.PRESSURE, Kind.HOST_KILL, Kind.EXCEPTION, Kind.SIGNAL, Kind.EXIT, Kind.GONE, Kind.SILENCE}
)
"""Kinds to which the phase of the failing allocation has nothing to add."""


def diagnose(s: Situation) -> tuple[Finding, ...]:
    """Findings of one failure; at least one, the verdict first."""
    rule = elsewhere.RULES.get(s.kind)
    if rule is not None:
        return (rule(s), *phases.phase_findings(s)) if s.kind not in _WITHOUT_PHASE else (rule(s),)
    if s.recorded:
        leading = recorded.recorded_findings(s)
        named = {finding.verdict for finding in leading}
        return (*leading, *(f for f in phases.phase_findings(s) if f.verdict not in named))
    leading = device.memory_findings(s)
    if not leading:
        leading = (
            Finding(
                Verdict.UNKNOWN,
                Strength.UNDECIDED,
                "the text gives too few figures to tell what was in the way",
                missing=device.missing_figures(s),
                check="run it once more with gpumem-tui run: it keeps the figures of that moment",
            ),
        )
    return (*leading, *phases.phase_findings(s))

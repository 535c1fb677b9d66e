"""From a run's state to the whole sheet: the order of its parts and sections."""

from collections.abc import Sequence

from gpumem_tui.analysis.foresight import Foresight
from gpumem_tui.analysis.scope import untested
from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import present
from gpumem_tui.views.foresight import foresight_sentences, invented_sentences
from gpumem_tui.views.report import observed
from gpumem_tui.views.report.charts import chart_section
from gpumem_tui.views.report.counters import counter_table
from gpumem_tui.views.report.failures import failure_section, finding_sections, headline
from gpumem_tui.views.report.ledgers import EQUATION, ledger_sections
from gpumem_tui.views.report.sheet import Cell, Column, Item, Part, Section, Sheet, Words, size, table
from gpumem_tui.views.text import clean


def sheet_of(state: RunState) -> Sheet:
    """The report of a run that goes on or has ended."""
    facts = state.facts
    return Sheet(
        title=clean(facts.run),
        badge=present.badge(facts),
        summary=_summary(state),
        parts=(_computed(state), _observed(state), _assumed(state), _scope(state)),
        foot=f"gpumem-tui {facts.identity.version if facts.identity is not None else ''}".rstrip(),
    )


def _summary(state: RunState) -> tuple[Item, ...]:
    facts = state.facts
    items: list[Item] = [Words(f"{present.run_sentence(state)}, on {clean(facts.host)}", "headline")]
    if facts.simulated is not None:
        items.append(Words(f"SIMULATED {clean(facts.simulated)}: the cards are not real.", "warning"))
    if facts.recorded:
        items.append(Words("RECORDED: a bundled recording, nothing runs.", "warning"))
    failure = headline(state)
    if failure is not None:
        items.append(failure)
    moment = present.moment_sentence(facts)
    if moment:
        items.append(Words(f"{moment[0].upper()}{moment[1:]}."))
    items += [Words(sentence, role) for role, sentence in present.run_notes(state)]
    return tuple(items)


def _computed(state: RunState) -> Part:
    sections = [
        Section(
            "The equation",
            (Words(EQUATION), Words("For one device at one moment; every term has its source.")),
        ),
        *ledger_sections(state),
        *finding_sections(state),
    ]
    return Part(
        "Computed", "What follows from readings by a formula or a rule that is named.", tuple(sections)
    )


def _observed(state: RunState) -> Part:
    found = (
        failure_section(state),
        chart_section(state),
        Section("What the counters mean", (counter_table(),)),
        observed.level_section(state),
        observed.phase_section(state),
        observed.composition_section(state),
        observed.load_section(state),
        observed.process_section(state),
        observed.event_section(state),
        observed.environment_section(state),
        observed.identity_section(state),
    )
    sections = tuple(section for section in found if section is not None)
    return Part("Observed", "What was read from PyTorch, the driver and the operating system.", sections)


def _assumed(state: RunState) -> Part:
    facts = state.facts
    items: list[Item] = []
    if facts.assumptions:
        rows = [[clean(name), clean(value)] for name, value in facts.assumptions]
        items.append(table("Sizes of the simulated card", (Column("what"), Column("assumed")), rows))
    else:
        items.append(Words("No size in this report is assumed: the cards are real, and no margin is added."))
    items += [Words(f"{sentence}.") for sentence in invented_sentences(facts.foresight)]
    identity = facts.identity
    if identity is not None and identity.kernel_us is not None:
        items.append(Words(f"A simulated kernel takes {identity.kernel_us:g} µs."))
    if identity is not None and identity.declared:
        items.append(
            Words("Declared sizes are the user's word: compare them with the inputs that were observed.")
        )
    sections = [Section("Assumptions", tuple(items))]
    if facts.foresight:
        sections.insert(0, _foresight(facts.foresight))
    return Part("Assumed", "What nobody has measured here.", tuple(sections))


def _foresight(foresight: Sequence[Foresight]) -> Section:
    columns = (
        Column("GPU"),
        Column("point", right=True),
        Column("safe bound", right=True),
        Column("card", right=True),
    )
    rows: list[list[Cell | str]] = [
        [str(each.index), size(each.point_bytes), size(each.bound_bytes), size(each.capacity_bytes)]
        for each in foresight
    ]
    words = (Words(sentence.strip()) for sentence in foresight_sentences(foresight))
    return Section("What a real card would need", (table("Peak device memory", columns, rows), *words))


def _scope(state: RunState) -> Part:
    items = tuple(Words(sentence) for sentence in untested(state))
    return Part(
        "Outside the tested scope",
        "What this run does not show.",
        (Section("Not shown by this run", items),),
    )

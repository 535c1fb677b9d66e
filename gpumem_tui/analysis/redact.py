"""A picture of a run for people who should not know whose it is, or what else runs there.

Users, hosts, folders, command lines, labels and the names of strangers' processes become
placeholders, wherever they stand as words of their own. Figures, phases and findings stay. Refuses
to promise more: what the user's own code names (phases, modules, files in a stack) is kept.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import msgspec

from gpumem_tui.analysis.comparison import COMMANDS_DIFFER, Comparison
from gpumem_tui.analysis.factors import NOT_SET, Factor
from gpumem_tui.analysis.state import ProcessRow, RunState
from gpumem_tui.records import Header, Process, Record

HIDDEN = "[redacted]"

NOBODYS = frozenset({"root", "nobody", "daemon"})
"""Accounts of every machine: they name no person, and are words of their own ("the root module")."""


def redacted(state: RunState) -> RunState:
    """The same picture without names of people, machines, folders and other programs."""
    facts = state.facts
    shown: RunState = _mapped(state, _hider([state]))
    program = facts.command[0].rpartition("/")[2] if facts.command else ""
    return msgspec.structs.replace(
        shown,
        facts=msgspec.structs.replace(
            shown.facts,
            host=HIDDEN,
            user=HIDDEN,
            path=HIDDEN,
            command=(program, HIDDEN),
            labels=tuple((name, HIDDEN) for name, _ in facts.labels),
        ),
        processes=tuple(_process(row) for row in shown.processes),
    )


def redacted_records(
    state: RunState, stream: Iterable[tuple[Header, Record]]
) -> Iterator[tuple[Header, Record]]:
    """The records of that run with the same names hidden; ``state`` is the picture as it was read."""
    hide = _hider([state])
    ours = {rank.pid for rank in state.ranks} | {row.pid for row in state.processes if row.ours}
    for head, record in stream:
        shown: Record = _mapped(record, hide)
        if isinstance(shown, Process):
            name = shown.name if shown.pid in ours else HIDDEN
            shown = msgspec.structs.replace(shown, name=name, user=HIDDEN, command=HIDDEN, container=None)
        yield head, shown


def redacted_comparison(states: Sequence[RunState], comparison: Comparison) -> Comparison:
    """The same comparison without those names: what differs still does, if not by what.

    ``states`` are the pictures as they were read, those that were compared.
    """
    hide = _hider(states)
    shown: Comparison = _mapped(comparison, hide)
    return msgspec.structs.replace(
        shown,
        factors=tuple(_factor(factor, hide) for factor in comparison.factors),
        warnings=tuple(
            COMMANDS_DIFFER if each.startswith(COMMANDS_DIFFER) else hide(each)
            for each in comparison.warnings
        ),
    )


def _factor(factor: Factor, hide: Callable[[str], str]) -> Factor:
    """The factor hidden: values that differed are told apart by a number where they read alike."""
    whole = factor.name == "command" or factor.name.startswith("label ")
    shown = [
        value if value in (None, NOT_SET) else HIDDEN if whole else hide(value) for value in factor.values
    ]
    alike = {
        text: list(dict.fromkeys(v for v, s in zip(factor.values, shown, strict=True) if s == text))
        for text in shown
        if text is not None
    }
    values = tuple(
        text if text is None or len(alike[text]) < 2 else f"{text} {alike[text].index(value) + 1}"
        for text, value in zip(shown, factor.values, strict=True)
    )
    return msgspec.structs.replace(factor, name=hide(factor.name), values=values)


def _hider(states: Sequence[RunState]) -> Callable[[str], str]:
    """What puts placeholders into a text, in one pass: none is looked for in another."""
    given = [pair for state in states for pair in _words(state)]
    # The longest first, so that a folder goes before its user.
    words = dict(sorted(given, key=lambda pair: -len(pair[0])))
    if not words:
        return str
    pattern = re.compile("|".join(map(_pattern, words)))
    return lambda text: pattern.sub(lambda found: words[found[0]], text)


def _pattern(word: str) -> str:
    """A path or a command wherever it stands; a name only where no letter or digit goes on."""
    name = re.escape(word)
    return name if "/" in word or " " in word else rf"(?<![^\W_]){name}(?![^\W_])"


def _words(state: RunState) -> list[tuple[str, str]]:
    """(word, placeholder)."""
    facts, identity = state.facts, state.facts.identity
    words = {facts.path: "[recording]"}
    words |= {" ".join(facts.command): "[command]"} if len(facts.command) > 1 else {}
    if identity is not None:
        words[identity.cwd] = "[folder]"
    for row in state.processes:
        words |= {row.command: "[command]"} if " " in row.command or "/" in row.command else {}
        words[row.user] = "[user]"
        if not row.ours:
            words[row.name] = "[process]"
    words |= {facts.user: "[user]", facts.host: "[host]"}
    # Short names stand within ordinary words; their own fields are hidden all the same.
    return [(word, instead) for word, instead in words.items() if len(word) > 3 and word not in NOBODYS]


def _process(row: ProcessRow) -> ProcessRow:
    name = row.name if row.ours else HIDDEN
    return msgspec.structs.replace(row, name=name, user=HIDDEN, command=HIDDEN, container=None)


def _mapped(value: Any, hide: Callable[[str], str]) -> Any:
    """The value with every text in it hidden, whatever it is made of."""
    if isinstance(value, str):
        return value if isinstance(value, Enum) else hide(value)
    if isinstance(value, msgspec.Struct):
        changes = {name: _mapped(getattr(value, name), hide) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **changes)
    if isinstance(value, tuple):
        return tuple(_mapped(each, hide) for each in value)
    if isinstance(value, list):
        return [_mapped(each, hide) for each in value]
    if isinstance(value, dict):
        return {_mapped(key, hide): _mapped(each, hide) for key, each in value.items()}
    return value

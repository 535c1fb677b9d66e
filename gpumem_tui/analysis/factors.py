"""What two runs may differ in: every factor with its value in each run. Pure.

A factor is *set* where somebody chose it before the run (command, versions, card), and
*seen* where it shows in the run (shapes of inputs): what is seen may follow from what
was set, so it only counts as a difference of its own where nothing that was set differs.
"""

from collections.abc import Callable, Sequence

import msgspec

from gpumem_tui.analysis.ledger import Term
from gpumem_tui.analysis.provenance import Identity
from gpumem_tui.analysis.rankstate import RankState
from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.units import format_bytes

NOT_SET = "not set"
"""The value of a label, a variable or an option that another run has."""


class Factor(msgspec.Struct, frozen=True):
    """One factor in all runs. A value that is not known is None and equal to nothing."""

    name: str
    values: tuple[str | None, ...]
    seen: bool = False

    @property
    def differs(self) -> bool:
        """Whether two known values are not the same."""
        return len({value for value in self.values if value is not None}) > 1

    @property
    def unknown(self) -> bool:
        """Whether it is known of some runs only, so that nobody can say it is the same."""
        return not self.differs and None in self.values and any(value is not None for value in self.values)


def factors_of(states: Sequence[RunState]) -> tuple[Factor, ...]:
    """Every factor, in the order in which people ask for them."""
    found = [Factor(name, tuple(map(read, states))) for name, read in _SET]
    simulated = [state.facts.simulated or "no, real cards" for state in states]
    follows = all(state.facts.simulated for state in states)  # from the cards, whose factors tell it
    found.append(Factor("simulated", tuple(simulated), seen=follows))
    found += _pairs(states, "assumed", lambda state: state.facts.assumptions)
    found += _pairs(states, "label", lambda state: state.facts.labels)
    found += _pairs(states, "declared", lambda state: _identity(state, "declared"))
    found += _pairs(states, "$", lambda state: _identity(state, "environment"))
    found += _pairs(states, "simulated card's", lambda state: _identity(state, "simulation"))
    return (*found, *(Factor(name, tuple(map(read, states)), seen=True) for name, read in _SEEN))


def changed_words(commands: Sequence[Sequence[str]]) -> list[str]:
    """Options and words in which commands differ: ``--batch 4 → 8``, ``--flush not set → set``."""
    parsed = [_options(command) for command in commands]
    told = []
    for key in dict.fromkeys(key for options in parsed for key in options):
        values = [options.get(key, NOT_SET) for options in parsed]
        if len(set(values)) > 1:
            told.append(f"{key} {' → '.join(values)}")
    return told


def _options(command: Sequence[str]) -> dict[str, str]:
    """Options with their values, and other words by their place among those."""
    found: dict[str, str] = {}
    taken = False
    for number, word in enumerate(command):
        if taken:
            taken = False
            continue
        name, sign, value = word.partition("=")
        after = command[number + 1] if number + 1 < len(command) else "-"
        if not word.startswith("-"):
            found[f"word {sum(not key.startswith('-') for key in found) + 1}"] = word
        elif sign:
            found[name] = value
        elif after.startswith("-"):
            found[word] = "set"
        else:
            found[word], taken = after, True
    return found


# --- reading one run ------------------------------------------------------------------------------


def _identity(state: RunState, field: str) -> tuple[tuple[str, str], ...]:
    pairs: tuple[tuple[str, str], ...] = getattr(state.facts.identity, field, ())
    return pairs


def _of_identity(read: Callable[[Identity], str | None]) -> Callable[[RunState], str | None]:
    def value(state: RunState) -> str | None:
        return None if state.facts.identity is None else read(state.facts.identity)

    return value


def _revision(identity: Identity) -> str | None:
    revision = identity.revision
    if revision.commit is None:
        return None
    changed = {True: " with changed files", False: "", None: ", changes not known"}
    return revision.commit[:12] + changed[revision.dirty]


def _ranks(read: Callable[[RankState], str | None]) -> Callable[[RunState], str | None]:
    """What all ranks say; each of several where they differ."""

    def value(state: RunState) -> str | None:
        said = sorted({told for rank in state.ranks if (told := read(rank)) is not None})
        return "; ".join(said) or None

    return value


def _cards(read: Callable[[DeviceState], str | None]) -> Callable[[RunState], str | None]:
    """Of the cards that the run used, in their order; once and counted where all say the same."""

    def value(state: RunState) -> str | None:
        said = [read(device) for device in state.devices if device.ours or device.curves]
        told = [each for each in said if each is not None]
        if not told or len(told) < len(said):
            return None
        return f"{len(told)} × {told[0]}" if len(told) > 1 == len(set(told)) else "; ".join(told)

    return value


def _size(total: Term) -> str | None:
    return None if total.bytes is None else format_bytes(total.bytes)


def _inputs(state: RunState) -> str | None:
    rows = sorted({f"{r.phase} {r.name}: {r.input}" for rank in state.ranks for r in rank.inputs})
    return "; ".join(rows) or None


def _flushes(state: RunState) -> str | None:
    if not state.ranks:
        return None
    calls = sum(dict(rank.marks).get("empty_cache", 0) for rank in state.ranks)
    return f"≥ {calls} calls" if calls else "no call"


_SET: tuple[tuple[str, Callable[[RunState], str | None]], ...] = (
    ("command", lambda state: " ".join(state.facts.command)),
    ("code revision", _of_identity(_revision)),
    ("seed", _of_identity(lambda identity: identity.seed)),
    ("PyTorch", _ranks(lambda rank: rank.torch_version)),
    ("Python", _ranks(lambda rank: rank.python)),
    ("backend", _ranks(lambda rank: " ".join(filter(None, (rank.backend, rank.backend_version))) or None)),
    ("allocator", _ranks(lambda rank: rank.allocator)),
    (
        "allocator settings",
        _ranks(lambda rank: "none set" if rank.allocator_settings == "" else rank.allocator_settings),
    ),
    ("world size", _ranks(lambda rank: str(rank.world_size) if rank.world_size is not None else "1")),
    ("cards", _cards(lambda device: device.name)),
    ("memory of the cards", _cards(lambda device: _size(device.ledger.total))),
    ("driver", _cards(lambda device: device.driver_version)),
    ("protocol", _of_identity(lambda identity: identity.protocol)),
    ("peaks", _of_identity(lambda identity: "reset at boundaries" if identity.reset_peaks else "left alone")),
    ("warm-up", _of_identity(lambda identity: identity.warmup)),
)
_SEEN: tuple[tuple[str, Callable[[RunState], str | None]], ...] = (
    ("inputs (dtype and shape)", _inputs),
    ("empty_cache", _flushes),
)


def _pairs(
    states: Sequence[RunState], prefix: str, read: Callable[[RunState], tuple[tuple[str, str], ...]]
) -> list[Factor]:
    """One factor for each name that any run has; "not set" (or assumed) where another has none."""
    told = [dict(read(state)) for state in states]
    names = dict.fromkeys(name for pairs in told for name in pairs)
    gap = "" if prefix == "$" else " "
    seen = prefix in ("label", "declared", "assumed")  # assumed sizes follow from the card that is simulated
    none = "not assumed" if prefix == "assumed" else NOT_SET
    return [
        Factor(f"{prefix}{gap}{name}", tuple(pairs.get(name, none) for pairs in told), seen) for name in names
    ]

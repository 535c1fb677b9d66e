"""Which row of the driver's process list is our rank, where pids do not tell: by evidence only.

In a container the driver may name processes by the host's pids. Three kinds of
evidence are taken, on one device at a time: a pid that appears while exactly one rank
was seen to initialise CUDA there, between two lists that lie close to it, one whose
figure follows a rank's reserved memory over several changes, and a single candidate for
a single rank.
Whatever fits two ranks, or two pids, is not claimed; a claim that the figures contradict
is given up.

Refuses: names, guesses by size alone, readings taken while memory was moving.
"""

from collections.abc import Hashable, Mapping
from enum import Enum
from typing import Generic, TypeVar

import msgspec

TOLERANCE_BYTES = 2 << 20
"""How far a followed change may be off: the granularity of what drivers report."""

MOVE_BYTES = 8 << 20
"""A change of reserved memory that is worth following; smaller ones say nothing."""

CHANGES = 3
"""Changes that must be followed, at least two of them different in size …"""

ENOUGH = 4
"""… and together so telling: a change that any PyTorch makes counts once, a large one twice."""

RIVAL = 3
"""What another pair may weigh at most for one to be believed."""

LARGE_BYTES = 64 << 20
"""PyTorch grows in steps of 2 and 20 MiB, and so does another's PyTorch; larger ones are a program's own."""

LISTS = 2
"""Process lists in a row that must have a single candidate, and be consistent, before it is believed …"""

LATE_NS = 1_500_000_000
"""… the last of them so long after the rank first held memory: a list may be late with a new process."""

_ALWAYS_NS = -(1 << 62)
"""Earlier than every list."""

EARLIER_NS = 3_000_000_000
LATER_NS = 3_000_000_000
"""The list that first has the pid of an initialisation, and the one before it, lie no further from it."""

Key = TypeVar("Key", bound=Hashable)
"""A rank, as the caller names it."""


class Evidence(str, Enum):
    """How a process was recognised. The text is what people read; it is stable in JSON."""

    PID = "same pid"
    NAMESPACE = "NSpid of its namespace"
    NEW = "new pid at CUDA initialisation"
    GROWTH = "growth matching"
    ONLY = "only candidate"


class Claim(msgspec.Struct, frozen=True):
    """A pid of the driver's that is a rank of ours, and why."""

    pid: int
    by: Evidence
    changes: int = 0
    """How many changes of reserved memory its figure has followed."""


class _Pair:
    """One rank and one pid: what their figures have had in common."""

    def __init__(self) -> None:
        self.last: tuple[int, int] | None = None
        self.followed: list[int] = []
        """Sizes of the changes followed since the last one that was not."""
        self.weight = 0
        """How telling they are, less what this pid did on its own."""
        self.lists = 0
        self.broken = 0
        """Contradictions in a row: a change not followed, or less used than reserved."""

    def take(self, reserved: int, used: int) -> None:
        """Both figures at one quiet moment."""
        self.lists += 1
        if used < reserved - TOLERANCE_BYTES:
            self._start_anew(contradicted=True)
        elif self.last is not None:
            self._compare(reserved - self.last[0], used - self.last[1])
        self.last = (reserved, used)

    def _compare(self, wanted: int, got: int) -> None:
        moved, follows = abs(wanted) >= MOVE_BYTES, abs(got - wanted) <= TOLERANCE_BYTES
        if moved and follows:
            self.followed.append(abs(wanted))
            self.weight += 2 if abs(wanted) > LARGE_BYTES else 1
            self.broken = 0
        elif moved:  # what stands still while ours moves is somebody else
            self._start_anew(contradicted=abs(got) <= TOLERANCE_BYTES)
        elif not follows:  # may be memory outside PyTorch, or a stranger's own
            self.weight = max(0, self.weight - 1)

    def _start_anew(self, *, contradicted: bool) -> None:
        self.followed.clear()
        self.weight = 0
        self.broken += contradicted

    @property
    def matches(self) -> bool:
        """Whether this is evidence."""
        if len(self.followed) < CHANGES or self.weight < ENOUGH or self.broken:
            return False
        return max(self.followed) - min(self.followed) > 2 * TOLERANCE_BYTES

    @property
    def rivals(self) -> bool:
        """Whether it comes too close to a match for another to be believed."""
        return self.weight >= RIVAL and not self.broken


class Matcher(Generic[Key]):
    """The evidence on one device; fed with its process lists in order of time."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[Key, int], _Pair] = {}
        self._came: dict[int, tuple[int, int]] = {}
        """The last list without a pid, and the first with it."""
        self._last_ns = _ALWAYS_NS
        self._alone: tuple[Key, int, int] | None = None
        """The only rank and the only candidate of the last lists, and of how many."""
        self._claims: dict[Key, Claim] = {}
        self._begun: dict[Key, tuple[int | None, int]] = {}

    @property
    def claims(self) -> Mapping[Key, Claim]:
        """What is claimed now."""
        return self._claims

    def take(
        self,
        t_ns: int,
        used: Mapping[int, int | None],
        reserved: Mapping[Key, int | None],
        begun: Mapping[Key, tuple[int | None, int]],
    ) -> None:
        """A process list, and the ranks that hold this device and have no pid in it.

        ``used``: bytes of every pid that may be one of ours, None where the driver gives
        no figure. ``reserved``: of every such rank, None while it was moving. ``begun``:
        when each of them was seen to initialise CUDA (None where nobody was there yet), and
        when it was first seen to hold memory.
        """
        for pid in self._came.keys() - used.keys():
            self._forget(pid)
        for pid in used.keys() - self._came.keys():
            self._came[pid] = (self._last_ns, t_ns)
        self._last_ns = t_ns
        self._begun.update(begun)
        for key in [key for key in self._claims if key not in reserved]:
            del self._claims[key]
        for key, level in reserved.items():
            for pid, figure in used.items():
                if level is not None and figure is not None:
                    self._pairs.setdefault((key, pid), _Pair()).take(level, figure)
        self._give_up()
        self._claim_by_growth(used, reserved)
        self._claim_new(t_ns, used, reserved)
        self._claim_only(t_ns, used, reserved)

    def _forget(self, pid: int) -> None:
        del self._came[pid]
        for pair in [pair for pair in self._pairs if pair[1] == pid]:
            del self._pairs[pair]
        for key in [key for key, claim in self._claims.items() if claim.pid == pid]:
            del self._claims[key]

    def _give_up(self) -> None:
        for key, claim in list(self._claims.items()):
            if self._is_broken(key, claim.pid):
                del self._claims[key]

    def _is_broken(self, key: Key, pid: int) -> bool:
        pair = self._pairs.get((key, pid))
        return pair is not None and pair.broken > 1

    def _claim_by_growth(self, used: Mapping[int, int | None], reserved: Mapping[Key, int | None]) -> None:
        matching = [
            (key, pid)
            for key in reserved
            for pid in used
            if (pair := self._pairs.get((key, pid))) is not None and pair.matches
        ]
        for key, pid in matching:
            if any(
                pair.rivals and (other in reserved) and (other == key) != (whose == pid)
                for (other, whose), pair in self._pairs.items()
            ):
                self._drop_growth(key)
                continue
            held_by = [k for k, claim in self._claims.items() if claim.pid == pid and k != key]
            for other in held_by:  # weaker evidence, and it was wrong
                del self._claims[other]
            self._claims[key] = Claim(pid, Evidence.GROWTH, len(self._pairs[key, pid].followed))

    def _drop_growth(self, key: Key) -> None:
        claim = self._claims.get(key)
        if claim is not None and claim.by is Evidence.GROWTH:
            del self._claims[key]

    def _free(
        self, used: Mapping[int, int | None], reserved: Mapping[Key, int | None]
    ) -> tuple[list[Key], list[int]]:
        taken = {claim.pid for claim in self._claims.values()}
        return (
            [key for key in reserved if key not in self._claims],
            [pid for pid in used if pid not in taken],
        )

    def _claim_new(
        self, t_ns: int, used: Mapping[int, int | None], reserved: Mapping[Key, int | None]
    ) -> None:
        keys, pids = self._free(used, reserved)
        for key in keys:
            if self._begun.get(key, (None, 0))[0] is None:
                continue
            since, until = self._window(key)
            if t_ns < until or any(self._overlaps(key, other) for other in self._begun if other != key):
                continue
            new = [pid for pid in pids if self._may_have_come(pid, since, until)]
            if len(new) == 1 and self._came_within(new[0], since, until) and not self._is_broken(key, new[0]):
                self._claims[key] = Claim(new[0], Evidence.NEW)

    def _may_have_come(self, pid: int, since: int, until: int) -> bool:
        """Whether a pid may have come then."""
        absent_ns, listed_ns = self._came[pid]
        return absent_ns <= until and since <= listed_ns

    def _came_within(self, pid: int, since: int, until: int) -> bool:
        """Whether it certainly has: a list shortly before was without it, one shortly after had it."""
        absent_ns, listed_ns = self._came[pid]
        return since <= absent_ns and listed_ns <= until

    def _window(self, key: Key) -> tuple[int, int]:
        began, held = self._begun[key]
        return (held if began is None else min(began, held)) - EARLIER_NS, held + LATER_NS

    def _overlaps(self, one: Key, other: Key) -> bool:
        (since, until), (start, end) = self._window(one), self._window(other)
        return since <= end and start <= until

    def _claim_only(
        self, t_ns: int, used: Mapping[int, int | None], reserved: Mapping[Key, int | None]
    ) -> None:
        if len(reserved) != 1 or len(used) != 1:
            self._alone = None
            return
        (key,), (pid,) = reserved, used
        before, self._alone = self._alone, (key, pid, 1)
        if before is not None and before[:2] == (key, pid):
            self._alone = (key, pid, before[2] + 1)
        held_ns = self._begun.get(key, (0, _ALWAYS_NS))[1]
        if key in self._claims or self._alone[2] < LISTS or t_ns < held_ns + LATE_NS:
            return
        pair = self._pairs.get((key, pid))
        if used[pid] is None or (pair is not None and pair.lists >= LISTS and not pair.broken):
            self._claims[key] = Claim(pid, Evidence.ONLY)

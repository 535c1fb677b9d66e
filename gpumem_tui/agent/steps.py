"""When a training step begins: from optimizer steps to a count that goes up once an iteration.

The first optimizer that steps leads. A round is complete when every optimizer that
stepped in the last round has stepped again; the next training forward then begins a
step. So gradient accumulation, several optimizers in one iteration and an optimizer
for each parameter count as people do. Until the second round it is not known that a
round has several optimizers.
"""

from __future__ import annotations

from typing import Optional, Set

PATIENCE = 3
"""Rounds in which the leader may be missing before another optimizer leads."""


class Steps:
    """Counts the steps of this process. Optimizers are told by an identity that is theirs for life."""

    def __init__(self) -> None:
        self.count = 0
        """Steps begun; 0 before the first training forward."""
        self._leader: Optional[int] = None
        self._round: Set[int] = set()
        """Who has stepped since, and with, the leader's last step."""
        self._expected: Set[int] = set()
        """Who stepped in the round before."""
        self._due = True
        """The next training forward begins a step."""
        self._others = 0
        """Steps of others since the leader's."""
        self._known: Set[int] = set()
        self._began_round = -1
        """Count when the leader last stepped."""
        self._early = False
        """A step was counted in the middle of a round; the round's end has already been told."""

    @property
    def within(self) -> bool:
        """Whether a step has begun and its round is not complete."""
        return self.count > 0 and not self._due

    def forward(self) -> None:
        """A training forward begins."""
        if self._due:
            self._due = False
            if self._early:
                self._early = False
            else:
                self.count += 1

    def stepped(self, optimizer: int) -> None:
        """An optimizer has stepped."""
        if self._leader is None:
            self._leader = optimizer
        if optimizer == self._leader:
            self._others = 0
            if self._round and not self._due and self._began_round == self.count:
                self.count += 1  # the last round never became complete: the leader's step counts all the same
            self._expected, self._round = self._round, {optimizer}
            self._began_round = self.count
        else:
            if optimizer not in self._known and self._began_round < self.count:
                self._early = True  # a round has more optimizers than was known when the last step began
            self._round.add(optimizer)
            self._others += 1
            if self._others > PATIENCE * max(1, len(self._expected)):
                self._leader, self._round, self._others = optimizer, {optimizer}, 0
        self._known.add(optimizer)
        self._due = self._round >= self._expected

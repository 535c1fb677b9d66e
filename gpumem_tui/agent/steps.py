"""When a step begins: from forwards and optimizer steps to a count that goes up once an iteration.

*Training.* The first optimizer that steps leads. A round is complete when every
optimizer that stepped in the last round has stepped again; the next training forward
then begins a step. So gradient accumulation, several optimizers in one iteration and
an optimizer for each parameter count as people do. The first round is taken to have
all optimizers that were made before; one that does not step in it was none of it. A
loop that updates its parameters by hand is known by gradients that are gone at the
next forward. Where no module is called at all, the first backward begins a step. An
optimizer whose parameters are gone leads no more.

*Inference.* Outside training, a step is one call of the model that leads: of the first
that was called. What was counted so ends with the first training forward.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Optional, Set

PATIENCE = 3
"""Rounds in which the leader may be missing before another optimizer, or another model, leads.

Also: so many forwards in training mode without a backward are a training that has not begun;
with one more, they are inference by somebody who did not say so.
"""


class Steps:
    """Counts the steps of this process. Optimizers and models are told by an identity that is theirs."""

    def __init__(self) -> None:
        self.count = 0
        """Steps begun; 0 before the first."""
        self.training = False
        """Whether a training forward has begun: from then on inference is part of training."""
        self._leader: Optional[int] = None
        self._alive: Callable[[], Any] = lambda: self
        """Gives None once the leader's parameters are gone."""
        self._round: Set[int] = set()
        """Who has stepped since, and with, the leader's last step."""
        self._expected: Set[int] = set()
        """Who stepped in the round before."""
        self._awaited: Set[int] = set()
        """Optimizers that were made and have not stepped yet: the first round is theirs too."""
        self._due = True
        """The next training forward begins a step."""
        self._others = 0
        """Steps of others since the leader's."""
        self._known: Set[int] = set()
        self._began_round = -1
        """Count when the leader last stepped."""
        self._early = False
        """A step was counted in the middle of a round; the round's end has already been told."""
        self._late: Optional[int] = None
        """The optimizer that was taken for one more of the leader's round."""
        self._forwards = 0
        self._backwards = 0
        """Backwards since the last counted step; -1 while there was none at all."""
        self.learned = 0
        """Backwards so far."""
        self._serves: Optional[int] = None
        """The model that leads outside training."""
        self._missed = 0
        """Calls of others since the leading model's."""
        self._served = itertools.count(1)
        """Atomic where threads count together."""

    @property
    def within(self) -> bool:
        """Whether a training step has begun and its round is not complete."""
        return self.training and not self._due

    @property
    def leaderless(self) -> bool:
        """Whether no optimizer leads: only gradients say then where a step begins."""
        return self._leader is None

    def inferred(self, model: int) -> None:
        """A forward outside training, or one call of ``generate``, begins."""
        if self.training:
            return
        if self._serves is None or self._missed > PATIENCE:
            self._serves = model
        if model != self._serves:
            self._missed += 1
            return
        self._missed = 0
        number = next(self._served)
        if number > self.count:
            self.count = number

    def forward(self, cleared: bool = False) -> None:
        """A training forward begins; ``cleared``: its model takes gradients and holds none."""
        self._train()
        self._forwards += 1
        if self._leader is None:
            if self._backwards == -1 and self._forwards > PATIENCE:
                self.count, self._due = self._forwards - 1, True
            elif self._backwards > 0 and cleared:
                self._due = True
        if self._due:
            self._begin()

    def _train(self) -> None:
        if not self.training:
            self.training = True
            self.count = 0
            self._backwards = -1

    def _begin(self) -> None:
        self._train()
        self._due = False
        self._backwards = min(self._backwards, 0)
        if self._early:
            self._early = False
        else:
            self.count += 1

    def backward(self, accumulates: bool = True) -> None:
        """Gradients are computed: of all forwards so far, where it is the first time.

        Not ``accumulates``: they are returned. Where an optimizer is to step, that ends nothing.
        """
        if self._backwards == -1 and self._leader is None:
            self.count, self._due = min(self.count, 1), False
        self._backwards = max(self._backwards, 0) + int(accumulates or not self._awaited)
        self.learned += 1

    def unmodelled(self) -> None:
        """Gradients of something on a device: where no module was ever called, that begins a step."""
        if self._due and not self._forwards:
            self._begin()

    def region_ended(self) -> None:
        """A compiled function with a backward in it has returned: its optimizer may be compiled with it."""
        if self._leader is None:
            self._due = True

    def leads(self, optimizer: int) -> None:
        """An optimizer is known that will step after further forwards, whatever has stepped before."""
        if self._leader != optimizer:
            self._leader, self._alive = optimizer, lambda: True
            self._expected, self._round, self._others, self._late = set(), set(), 0, None

    def made(self, optimizer: int) -> None:
        """An optimizer is there, before any has stepped: it has its part in an iteration."""
        if self._leader is None or self._alive() is None:
            self._awaited.add(optimizer)

    def stepped(self, optimizer: int, alive: Callable[[], Any] = lambda: True) -> None:
        """An optimizer has stepped; ``alive()`` gives None once its parameters are gone."""
        if self._leader is None or (optimizer != self._leader and self._alive() is None):
            self._leader = optimizer
            self._round, self._awaited = self._awaited, set()  # as if they had all stepped in a round before
            self._began_round = -1
        if optimizer == self._leader:
            self._alive, self._others, self._late = alive, 0, None
            if self._round and not self._due and self._began_round == self.count:
                self.count += 1  # the last round never became complete: the leader's step counts all the same
            self._expected, self._round = self._round, {optimizer}
            self._began_round = self.count
        else:
            if optimizer not in self._known and self._began_round < self.count:
                # A round has more optimizers than was known when the last step began.
                self._early, self._late = True, optimizer
            self._round.add(optimizer)
            self._others += 1
            if self._others > PATIENCE * max(1, len(self._expected)):
                self.count += optimizer == self._late  # it was none of it
                self._leader, self._alive, self._late = optimizer, alive, None
                self._expected, self._round, self._others = set(), {optimizer}, 0
        self._known.add(optimizer)
        self._due = self._round >= self._expected

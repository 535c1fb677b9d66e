"""Which pid is our rank: evidence, ambiguity, and claims that are given up."""

import random

import pytest

from gpumem_tui.analysis.identity import Claim, Evidence, Matcher

MIB = 1 << 20
SECOND = 1_000_000_000


class Card:
    """A device whose process list is read every second."""

    def __init__(self):
        self.matcher = Matcher()
        self.t_ns = 0

    def list(self, used, reserved, begun=None):
        self.t_ns += SECOND
        self.matcher.take(
            self.t_ns,
            {pid: None if n is None else n * MIB for pid, n in used.items()},
            {rank: None if n is None else n * MIB for rank, n in reserved.items()},
            begun or {},
        )
        return dict(self.matcher.claims)


def test_a_figure_that_follows_over_several_changes_is_ours():
    card = Card()
    for level in (100, 300, 260, 900):
        claims = card.list({7: 500 + level, 8: 2000}, {"rank 0": level})

    assert claims == {"rank 0": Claim(7, Evidence.GROWTH, 3)}


def test_two_changes_are_not_enough():
    card = Card()
    for level in (100, 300, 260):
        claims = card.list({7: 500 + level, 8: 2000}, {"rank 0": level})

    assert claims == {}


def test_equal_steps_alone_are_no_evidence():
    card = Card()
    for level in range(100, 400, 20):
        claims = card.list({7: 500 + level, 8: 2000}, {"rank 0": level})

    assert claims == {}


def test_a_change_while_memory_was_moving_is_judged_at_the_next_quiet_reading():
    card = Card()
    for level, quiet in ((100, True), (300, False), (300, True), (900, True), (200, True)):
        claims = card.list({7: 500 + level, 8: 2000}, {"rank 0": level if quiet else None})

    assert claims["rank 0"].changes == 3


def test_identical_candidates_are_not_claimed():
    card = Card()
    for level in (100, 300, 260, 900, 50, 700):
        claims = card.list({7: 500 + level, 8: 640 + level}, {"rank 0": level})

    assert claims == {}


def test_ranks_in_lockstep_on_one_card_are_not_told_apart():
    card = Card()
    for level in (100, 300, 260, 900, 50, 700):
        claims = card.list({7: 500 + level, 8: 500 + level}, {"rank 0": level, "rank 1": level})

    assert claims == {}


def test_memory_outside_pytorch_may_grow_and_the_match_starts_anew():
    card = Card()
    for level, outside in ((100, 500), (300, 500), (260, 700), (900, 700), (50, 700)):
        claims = card.list({7: outside + level, 8: 2000}, {"rank 0": level})
    before = claims
    after = card.list({7: 700 + 420, 8: 2000}, {"rank 0": 420})

    assert before == {}
    assert after == {"rank 0": Claim(7, Evidence.GROWTH, 3)}


def test_a_pid_that_is_new_when_one_rank_initialises_is_it():
    card = Card()
    for _ in range(4):
        card.list({8: 2000}, {})
    begun = {"rank 0": (int(4.5 * SECOND), int(4.8 * SECOND))}
    early = card.list({7: 600, 8: 2000}, {"rank 0": 100}, begun)
    for _ in range(3):
        claims = card.list({7: 600, 8: 2000}, {"rank 0": 100}, begun)

    assert early == {}
    assert claims == {"rank 0": Claim(7, Evidence.NEW)}


@pytest.mark.parametrize("others", [{"rank 1": (int(4.6 * SECOND), int(4.9 * SECOND))}, {}])
def test_two_new_pids_or_two_ranks_at_once_are_not_told_apart(others):
    card = Card()
    for _ in range(4):
        card.list({8: 2000}, {})
    begun = {"rank 0": (int(4.5 * SECOND), int(4.8 * SECOND)), **others}
    for _ in range(6):
        claims = card.list({7: 600, 9: 600, 8: 2000}, dict.fromkeys(begun, 100), begun)

    assert claims == {}


def test_pids_of_the_first_list_are_not_new():
    card = Card()
    begun = {"rank 0": (int(0.5 * SECOND), int(0.8 * SECOND))}
    for _ in range(6):
        claims = card.list({7: 600, 8: 700}, {"rank 0": 100}, begun)

    assert claims == {}


def test_a_stranger_that_comes_as_a_rank_is_first_seen_long_after_it_initialised_is_not_new():
    card = Card()
    for _ in range(4):
        card.list({6: None, 8: None}, {})
    begun = {"rank 0": (None, int(4.8 * SECOND))}  # an agent started by hand; 6 is its process
    for _ in range(8):
        claims = card.list({6: None, 7: None, 8: None}, {"rank 0": 100}, begun)

    assert claims == {}


def test_a_pid_that_came_while_the_lists_were_refused_is_not_new():
    card = Card()
    card.list({8: 2000}, {})
    card.t_ns += 60 * SECOND  # a long refusal, at whose end a rank initialises; its row is late
    begun = {"rank 0": (int(60.5 * SECOND), int(60.8 * SECOND))}
    for _ in range(8):
        claims = card.list({7: 600, 8: 2000}, {"rank 0": 100}, begun)

    assert claims == {}


def test_a_pid_that_is_first_listed_long_after_an_initialisation_is_not_new():
    card = Card()
    for _ in range(4):
        card.list({8: 2000}, {})
    card.t_ns += 60 * SECOND
    begun = {"rank 0": (int(4.5 * SECOND), int(4.8 * SECOND))}
    for _ in range(4):
        claims = card.list({7: 600, 8: 2000}, {"rank 0": 100}, begun)

    assert claims == {}


def test_a_single_candidate_is_not_believed_before_a_late_list_would_have_the_rank():
    card = Card()
    for _ in range(4):
        card.list({8: None}, {})
    begun = {"rank 0": (int(4.5 * SECOND), int(4.8 * SECOND))}
    late = card.list({8: None}, {"rank 0": 100}, begun)
    for _ in range(6):
        claims = card.list({7: None, 8: None}, {"rank 0": 100}, begun)

    assert late == {}
    assert claims == {"rank 0": Claim(7, Evidence.NEW)}


def test_a_single_candidate_for_a_single_rank_is_it_from_the_second_list_on():
    card = Card()
    first = card.list({7: 600}, {"rank 0": 100})
    second = card.list({7: 600}, {"rank 0": 100})

    assert first == {}
    assert second == {"rank 0": Claim(7, Evidence.ONLY)}


def test_a_single_candidate_without_a_figure_is_it_too():
    card = Card()
    card.list({7: None}, {"rank 0": 100})

    assert card.list({7: None}, {"rank 0": 100}) == {"rank 0": Claim(7, Evidence.ONLY)}


def test_a_single_pid_that_holds_less_than_ours_reserves_is_not_it():
    card = Card()
    for _ in range(4):
        claims = card.list({7: 600}, {"rank 0": 900})

    assert claims == {}


def test_a_claim_that_the_figures_contradict_is_given_up():
    card = Card()
    for _ in range(2):
        claimed = card.list({7: 3000}, {"rank 0": 100})
    card.list({7: 3000}, {"rank 0": 500})
    claims = card.list({7: 3000}, {"rank 0": 900})

    assert claimed == {"rank 0": Claim(7, Evidence.ONLY)}
    assert claims == {}


def test_growth_overrules_weaker_evidence():
    card = Card()
    for _ in range(4):
        card.list({8: 2000}, {})
    begun = {"rank 0": (int(4.5 * SECOND), int(4.8 * SECOND))}
    for _ in range(5):
        weaker = card.list({9: 900, 8: 600}, {"rank 0": 100}, begun)
    for level in (300, 260, 900):
        claims = card.list({9: 900, 8: 500 + level}, {"rank 0": level})

    assert weaker == {"rank 0": Claim(9, Evidence.NEW)}
    assert claims == {"rank 0": Claim(8, Evidence.GROWTH, 3)}


def test_a_process_that_ends_is_no_longer_ours():
    card = Card()
    card.list({7: 600}, {"rank 0": 100})
    card.list({7: 600}, {"rank 0": 100})

    assert card.list({}, {"rank 0": 100}) == {}


class Walk:
    """Memory of a process that works: steps of one allocator or of nobody's, rests, drops."""

    def __init__(self, random_, style):
        self.random, self.style, self.level = random_, style, random_.randrange(40, 2000, 2)
        self.outside = random_.randrange(200, 900)

    def go(self):
        draw = self.random.random()
        if draw < 0.25:
            return
        if self.style == "torch":  # segments of 2 and 20 MiB, and large ones
            self.level += self.random.choice((2, 20, 20, 40, 60, self.random.randrange(22, 800, 2)))
        elif self.style == "steps":
            self.level += 20
        else:
            self.level += self.random.randrange(1, 500)
        if draw > 0.8:
            self.level = self.random.randrange(40, max(42, self.level // 2 * 2), 2)

    @property
    def used(self):
        return self.level + self.outside


@pytest.mark.parametrize("cards", [1, 2])
def test_two_ranks_among_three_strangers_are_found_within_20_s_and_nobody_else_is(cards):
    trials, found_after, wrong = 200, [], 0
    for trial in range(trials):
        chance = random.Random(f"{cards} {trial}")
        card = [Card() for _ in range(cards)]
        ranks = {f"rank {i}": (i % cards, 100 + i, Walk(chance, "torch")) for i in range(2)}
        strangers = {
            200 + i: (chance.randrange(cards), Walk(chance, style))
            for i, style in enumerate(("torch", "steps", "any"))
        }
        late = {}
        for second in range(1, 61):
            for _, _, walk in ranks.values():
                walk.go()
                if chance.random() < (0.15 if second <= 5 else 0.01):
                    walk.outside += chance.randrange(3, 200)  # a communicator, a library
            for _, walk in strangers.values():
                walk.go()
            for index, device in enumerate(card):
                used = {pid: walk.used for where, pid, walk in ranks.values() if where == index}
                used |= {pid: walk.used for pid, (where, walk) in strangers.items() if where == index}
                quiet = {
                    name: walk.level if chance.random() < 0.8 else None
                    for name, (where, _, walk) in ranks.items()
                    if where == index
                }
                for name, claim in device.list(used, quiet).items():
                    wrong += claim.pid != ranks[name][1]
                    late.setdefault(name, second)
        found_after += [late.get(name, 99) for name in ranks]

    assert wrong == 0
    assert max(found_after) <= 20


class Node:
    """A card under host pids, second by second: ranks and strangers come, work and go; lists are refused."""

    def __init__(self, chance):
        self.chance, self.now = chance, 0.0
        self.pids = iter(range(300, 10_000))
        self.free = []
        """Pids of the dead, which are used again."""
        self.figures = chance.random() < 0.8
        self.strangers = {}
        self.ranks = {f"rank {i}": chance.uniform(1, 50) for i in range(chance.choice((1, 1, 2, 3)))}
        """When each initialises CUDA."""
        self.true = {}
        self.walks = {}
        self.held = {}
        self.refused_until = 0.0

    def pid(self):
        if self.free and self.chance.random() < 0.5:
            return self.free.pop(0)
        return next(self.pids)

    def go(self):
        self.now += self.chance.uniform(0.9, 2.1)
        chance = self.chance
        for pid, (_, walk) in list(self.strangers.items()):
            walk.go()
            if chance.random() < 0.03:
                del self.strangers[pid]
                self.free.append(pid)
        if chance.random() < (0.5 if self.now < 3 else 0.06):
            walk = Walk(chance, chance.choice(("torch", "steps", "any")))
            self.strangers[self.pid()] = (self.now + chance.uniform(0, 1), walk)
        for name, begins in self.ranks.items():
            if name in self.true:
                self.walks[name].go()
            elif begins < self.now:
                self.true[name], self.walks[name] = self.pid(), Walk(chance, "torch")
                self.held[name] = (begins, min(self.now, begins + chance.uniform(0, 2)), chance.uniform(0, 1))
        if chance.random() < 0.05:
            self.refused_until = self.now + chance.uniform(1, 40)

    def list(self, card):
        """A list, late with who is new, unless it is refused; who is claimed wrongly, and by what."""
        if self.now < self.refused_until:
            return []
        used = {pid: walk.used for pid, (since, walk) in self.strangers.items() if since <= self.now}
        ranks = {name: self.walks[name].level for name, (_, held, _) in self.held.items() if held <= self.now}
        for name, (_, held, late) in self.held.items():
            if held + late <= self.now:
                used[self.true[name]] = self.walks[name].used
        begun = {n: tuple(int(t * SECOND) for t in self.held[n][:2]) for n in ranks}
        quiet = {n: level if self.chance.random() < 0.8 else None for n, level in ranks.items()}
        card.t_ns = int((self.now - 1) * SECOND)
        claims = card.list(used if self.figures else dict.fromkeys(used), quiet, begun)
        return [(claim.by, claim.pid == self.true[name]) for name, claim in claims.items()]


def test_no_stranger_is_ever_claimed_through_refusals_late_rows_and_pids_used_again():
    seen = set()
    for trial in range(400):
        node, card = Node(random.Random(f"node {trial}")), Card()
        while node.now < 120:
            node.go()
            seen.update(node.list(card))

    assert seen == {(by, True) for by in (Evidence.NEW, Evidence.ONLY, Evidence.GROWTH)}

"""What a newcomer reads twice: figures that must agree, sentences that must end, the same thing told once."""

import msgspec
from tui import scripted

from gpumem_tui.analysis.state import Event, Severity
from gpumem_tui.units import GIB, format_gib
from gpumem_tui.views import holders, panels
from gpumem_tui.views.text import plain


def with_newer_counters(state):
    """Every rank has spoken once more since its ledger was joined."""
    ranks = tuple(
        msgspec.structs.replace(
            rank,
            levels=tuple(
                msgspec.structs.replace(level, allocated_bytes=level.allocated_bytes + GIB)
                for level in rank.levels
            ),
        )
        for rank in state.ranks
    )
    return msgspec.structs.replace(state, ranks=ranks)


def test_a_rank_has_the_figures_of_its_cards_ledger():
    state = with_newer_counters(scripted.picture(60, 2))

    rows = holders.rank_rows(state)
    shares = [device.ledger.ranks[0] for device in state.devices]

    assert [row.allocated_bytes for row in rows] == [share.allocated.bytes for share in shares]
    assert [row.reserved_bytes for row in rows] == [share.reserved.bytes for share in shares]


def test_a_rank_on_a_card_that_the_driver_does_not_name_keeps_its_own_figures():
    state = scripted.picture(60)
    alone = msgspec.structs.replace(state, devices=())

    assert holders.rank_rows(alone)[0].allocated_bytes == state.ranks[0].levels[0].allocated_bytes


def test_a_process_on_many_cards_names_them_as_ranges_and_says_that_its_figures_are_of_all():
    state = scripted.picture(60, 4)
    levels = tuple(state.ranks[i].levels[0] for i in (0, 1, 3))
    rank = msgspec.structs.replace(state.ranks[0], levels=levels)

    line = plain(panels.rank_lines(msgspec.structs.replace(state, ranks=(rank,)), 100)[0])
    total = sum(
        share.allocated.bytes if share.pid == rank.pid else levels[position].allocated_bytes
        for position, share in enumerate(state.devices[i].ledger.ranks[0] for i in (0, 1, 3))
    )

    assert "GPU 0-1,3 " in line
    assert f"{format_gib(total)} of " in line
    assert "GiB  in all" in line


def test_what_eight_cards_say_at_once_is_told_once_with_how_often():
    now = scripted.START + 50 * scripted.SECOND
    events = [
        *(Event(now + i, Severity.INFO, "AdamW will make 8.02 MiB of state") for i in range(8)),
        Event(now + 5 * scripted.SECOND, Severity.INFO, "AdamW will make 8.02 MiB of state"),
        Event(now + 6 * scripted.SECOND, Severity.INFO, "another word"),
    ]
    lines = panels.event_lines(scripted.picture(60, events=tuple(events)), 80)

    assert [plain(line)[13:].rstrip() for line in lines] == [
        "another word",
        "AdamW will make 8.02 MiB of state",
        "AdamW will make 8.02 MiB of state  8 ×",
    ]


def test_a_narrow_event_keeps_how_often_it_was():
    now = scripted.START + 50 * scripted.SECOND
    events = tuple(Event(now + i, Severity.INFO, "AdamW will make 8.02 MiB of state") for i in range(8))
    (line,) = panels.event_lines(scripted.picture(60, events=events), 45)

    assert plain(line)[13:] == "AdamW will make 8.02 MiB o…  8 ×"


def test_a_header_without_room_leaves_the_time_out_and_cuts_no_word():
    state = scripted.simulated(90)
    facts = msgspec.structs.replace(state.facts, run="20261129-225120-finetune-4735")
    state = msgspec.structs.replace(state, facts=facts)

    narrow, wide = (plain(panels.header(state, cells)) for cells in (80, 120))

    assert "…" not in narrow
    assert "running since " in narrow
    assert "min" not in narrow
    assert "min" in wide

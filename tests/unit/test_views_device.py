"""The panels of one device: every term with source and age, changes between readings, its own share."""

import msgspec
import pytest
from tui import scripted

from gpumem_tui.analysis.rankstate import Series
from gpumem_tui.views import devicepanels
from gpumem_tui.views.text import plain, width

SECOND, START = scripted.SECOND, scripted.START


def ledger(state, cells=100):
    return [plain(line).rstrip() for line in devicepanels.ledger_lines(state.devices[0], state, cells)]


def changes(state, since_s, now_s, cells=100):
    lines = devicepanels.change_lines(
        state.devices[0], state, START + since_s * SECOND, START + now_s * SECOND, cells
    )
    return [plain(line).rstrip() for line in lines]


def test_every_term_has_figure_age_and_source():
    assert ledger(scripted.picture(60)) == [
        "   ▅ allocated       8.90 GiB  now        allocated_bytes.all.current",
        "   ▓ cached          2.70 GiB  now        = reserved − allocated of one sample",
        "   ▒ outside         0.45 GiB  now        = process used − reserved",
        "   ╳ others          6.00 GiB  now        NVML usedGpuMemory",
        "   ┃ driver          0.50 GiB  now        NVML memory v2 reserved",
        "   ? unattributed    0.00 GiB  now        = total − free − all terms",
        "   · free            5.45 GiB  now        NVML memory.free",
        "   = total          24.00 GiB  driver's word",
    ]


def test_a_missing_term_is_told_by_its_reason():
    lines = ledger(scripted.without_driver())

    assert "   · free               —                 no driver" in lines
    assert "   = total          23.50 GiB  PyTorch's word" in lines


def test_a_stale_term_says_how_old_it_is_and_a_fresh_one_does_not_tick():
    state = scripted.picture(60)
    fresh, later, stale = (
        ledger(msgspec.structs.replace(state, now_ns=state.now_ns + age * SECOND)) for age in (0, 2, 40)
    )

    assert fresh == later
    assert "40 s ago" in stale[0]


@pytest.mark.parametrize(("state", "held"), [(scripted.picture(60), True), (scripted.ended(60), False)])
def test_what_was_fresh_at_a_held_moment_or_at_the_end_is_not_of_now(state, held):
    lines = devicepanels.ledger_lines(state.devices[0], state, 100, held=held)

    assert all("  then  " in plain(line) for line in lines[:7])


def test_changes_are_between_two_readings_of_one_counter():
    state = scripted.picture(60)
    (before, _), (after, reserved) = scripted.levels_at(20, 0), scripted.levels_at(60, 0)
    change = f"{(after - before) / scripted.GIB:+.2f} GiB"
    lines = changes(state, 20, 60)

    assert lines[0].startswith(f"   ▅ allocated   {change:>12}")
    assert f"{before / scripted.GIB:.2f} → {after / scripted.GIB:.2f}  between " in lines[0]
    assert f"→ {reserved / scripted.GIB:.2f}" in lines[1]
    assert lines[-1] == "   bob 9000: +512 MiB in the last minute"


def test_between_what_a_level_moved_is_left_out_where_it_has_no_room():
    wide, narrow = (changes(scripted.picture(60), 20, 60, cells)[0] for cells in (100, 52))

    assert "between" in wide
    assert narrow == wide.partition("  between")[0]


def test_where_nothing_was_read_there_is_no_change():
    state = scripted.picture(60, gap=(20, 61))

    assert changes(state, 0, 60)[:3] == [
        "   ▅ allocated   —",
        "   ▓ reserved    —",
        "   ░ device used —",
    ]


def test_an_unread_curve_is_no_change_from_zero():
    state = scripted.picture(60)
    blind = msgspec.structs.replace(state.devices[0], driver_used=Series.empty())
    state = msgspec.structs.replace(state, devices=(blind,))

    assert changes(state, 0, 60)[2] == "   ░ device used —"


def test_a_narrowed_picture_has_only_what_is_on_the_device():
    state = scripted.with_phases(60, 3)
    here = devicepanels.narrowed(state, state.devices[2])

    assert [rank.rank for rank in here.ranks] == [2]
    assert {row.device for row in here.processes} == {2}
    assert len(here.ranks[0].composition) == 1


@pytest.mark.parametrize("cells", [10, 40, 80, 200])
@pytest.mark.parametrize("state", [scripted.picture(60), scripted.without_driver(), scripted.opaque()])
def test_panels_keep_to_their_width(state, cells):
    lines = [
        *devicepanels.ledger_lines(state.devices[0], state, cells),
        *devicepanels.change_lines(state.devices[0], state, START, state.now_ns, cells),
    ]

    assert {width(plain(line)) for line in lines} == {cells}

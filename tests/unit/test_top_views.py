"""The driver's view as lines, text and JSON: what is shown at which size, and what is never made up."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from toppictures import GIB, card, picture, process

from gpumem_tui.analysis.ledger import missing
from gpumem_tui.analysis.top import SORTS, Ancestor, FileHolder, Wanted, ordered, select
from gpumem_tui.records import Reason
from gpumem_tui.views import topjson, toppanels, toprows, topscreen, toptext
from gpumem_tui.views.text import Span, line_width, plain


def screen(state, cells=80, height=22, **place):
    return topscreen.draw(state, topscreen.Place(**place), cells, height)


def text(lines):
    return "\n".join(plain(line).rstrip() for line in lines)


MANY = picture(
    *(card(index, held=[(p.pid, GIB) for p in ()]) for index in range(16)),
    processes=[process(pid % 16, 1000 + pid, used=pid << 20) for pid in range(1, 201)],
)


def test_sixteen_cards_and_two_hundred_processes_fit_on_80_by_24():
    sheet = screen(MANY)
    shown = text(sheet.lines)

    assert len(sheet.lines) == 22
    assert all(re.search(rf"^ {index} |  {index}  ", shown, re.MULTILINE) for index in range(16))
    assert "200 processes by memory" in shown
    assert shown.count("python train.py") == 10
    assert "190 more: ↓" in shown


@given(
    st.integers(20, 200), st.integers(3, 60), st.integers(0, 17), st.integers(0, 210), st.booleans(),
    st.booleans(), st.integers(0, 250),
)  # fmt: skip
def test_no_line_is_wider_than_the_screen_and_there_are_no_more_than_fit(
    cells, height, cards, count, details, lost, moved
):
    state = picture(
        *(card(i, free=None if lost else GIB, reason=Reason.LOST if lost else None) for i in range(cards)),
        processes=[process(i % max(1, cards), i, used=None if i % 3 else i) for i in range(count)],
    )
    sheet = screen(state, cells, height)
    sheet = topscreen.draw(state, replace(topscreen.move(sheet, moved), details=details), cells, height)

    assert len(sheet.lines) <= height
    assert all(line_width(line) <= cells for line in sheet.lines)


def test_the_chosen_process_stays_in_view_and_is_found_by_its_row():
    sheet = screen(MANY)
    for _ in range(30):
        sheet = topscreen.draw(MANY, topscreen.move(sheet, 1), 80, 22)
    rows = [plain(line) for line in sheet.lines]
    at = next(i for i, row in enumerate(rows) if row.startswith("▸"))

    assert topscreen.choose_at(sheet, at) == sheet.place
    assert str(topscreen.chosen(sheet).pid) in rows[at]
    assert topscreen.choose_at(sheet, at - 1).chosen != sheet.place.chosen


def test_a_choice_that_has_ended_is_none():
    sheet = screen(MANY, chosen=(3, 99999))

    assert topscreen.chosen(sheet) is None
    assert sheet.place.chosen is None


def test_a_lost_card_has_its_reason_and_no_figure():
    state = picture(card(0, free=None, reason=Reason.LOST), card(1))
    shown = text(screen(state, 120).lines)
    row = next(line for line in shown.splitlines() if line.startswith(" 0 "))

    assert "lost" in row
    assert "GPU 0: memory — lost" in shown
    assert not re.search(r"\d+\.\d+", row)


def test_a_process_without_a_figure_is_kept_with_its_reason():
    state = picture(card(0), processes=[process(0, 7, used=None)])

    assert "— not sup" in text(screen(state).lines)


def test_a_process_of_another_namespace_is_kept_and_said_so():
    hidden = process(0, 10_004_711, visible=False, user="", name="", command="", rss_bytes=None)
    shown = text(screen(picture(card(0), processes=[hidden])).lines)

    assert "10004711 not visible" in shown
    assert "another container/namespace" in shown


def test_a_zombie_is_called_one():
    shown = text(screen(picture(card(0), processes=[process(zombie=True)])).lines)

    assert "zombie, still holds this; " in shown


def test_a_rank_of_a_recorded_run_is_named_with_its_phase():
    shown = text(screen(picture(card(0), processes=[process(run="bert-ft")]), 120).lines)

    assert "▸ bert-ft rank 0 forward python train.py" in shown


def test_nobodys_memory_is_pointed_out_with_who_has_the_device_file_open():
    holders = (FileHolder(4711, "python", "alice"), FileHolder(4712, "", ""))
    state = picture(card(0, free=20 * GIB, held=[(7, GIB)], file_holders=holders, unreadable=12))
    shown = text(screen(state, 160).lines)

    assert (
        "GPU 0: 3.00 GiB used by nobody listed; its device file is open in 4711 (python, alice), 4712 () "
        "(12 processes may not be looked at)"
    ) in shown.replace("4712 ()", "4712 ()")


def test_used_memory_that_processes_account_for_is_no_remark():
    state = picture(card(0, free=20 * GIB, held=[(7, 4 * GIB)]))

    assert toprows.remarks(state.devices[0]) == []


def test_a_card_of_which_processes_are_not_told_apart_has_one_figure_for_all():
    (remark,) = toprows.remarks(card(0, free=20 * GIB, processes_reason=Reason.NOT_SUPPORTED))[1:]

    assert remark == ("remark", "GPU 0: 4.00 GiB not told apart: processes + unattributed")


def test_a_driver_without_version_2_is_said_by_its_missing_share():
    made = card(0)
    old = replace(made.ledger, driver_reserved=missing(Reason.NOT_SUPPORTED))
    cells = toppanels._device_cells(replace(made, ledger=old), picture(made))

    assert cells["driver"] == ("—", "missing")


@pytest.mark.parametrize("by", sorted(SORTS))
def test_rows_without_a_figure_come_last_in_every_order(by):
    bare = process(0, 999, used=None, rss_bytes=None, started_wall_ns=None, user="")
    rows = [bare, *(process(0, pid, used=pid, growth_bytes=pid) for pid in (3, 1, 2))]

    assert ordered(rows, by)[-1] is bare or by == "pid"


def test_growth_orders_by_what_grew_most():
    rows = [process(0, 1, growth_bytes=5), process(0, 2, growth_bytes=50), process(0, 3)]

    assert [p.pid for p in ordered(rows, "growth")] == [2, 1, 3]


def test_what_is_wanted_is_kept():
    state = picture(
        card(0), card(1), card(200, parent=1, uuid="MIG-77"),
        processes=[process(0, 1), process(1, 2, user="eve"), process(200, 3, user="eve", namespace_pid=33)],
    )  # fmt: skip

    def pids(**wanted):
        shown = select(state, Wanted(**{k: frozenset(v) for k, v in wanted.items()}))
        return [d.label for d in shown.devices], [p.pid for p in shown.processes]

    assert pids() == (["0", "1", "1:0"], [1, 2, 3])
    assert pids(devices=["1"]) == (["1", "1:0"], [2, 3])
    assert pids(devices=["1:0"]) == (["1:0"], [3])
    assert pids(devices=["GPU-aaaa0000"]) == (["0"], [1])
    assert pids(users=["eve"]) == (["0", "1", "1:0"], [2, 3])
    assert pids(pids=[33]) == (["0", "1", "1:0"], [3])


def test_text_tells_every_card_and_process():
    shown = toptext.render(MANY, cells=100)

    assert len(re.findall(r"python train\.py", shown)) == 200
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_text_is_ascii_where_it_must_be():
    assert toptext.render(MANY, cells=80, ascii=True).isascii()


def test_without_a_card_the_driver_has_the_word():
    state = picture(driver_reason=Reason.DRIVER_MISMATCH, driver_word="Driver/library version mismatch")

    assert "driver and library versions differ: Driver/library version mismatch" in toptext.render(state)


def test_json_figures_have_a_value_or_a_reason():
    state = picture(
        card(0, free=None, reason=Reason.NOT_SUPPORTED),
        card(1, held=[(7, 14 * GIB)]),
        processes=[process(1, 7, used=14 * GIB), process(1, 8, used=None)],
    )
    read = json.loads(topjson.render(state))
    figures = [d[k] for d in read["devices"] for k in ("total", "used", "free", "unattributed")]
    figures += [p["used"] for p in read["processes"]] + [p["growth"] for p in read["processes"]]

    assert all((f["bytes"] is None) != (f["reason"] is None) for f in figures)
    assert read["devices"][0]["total"]["reason"] == "not supported"
    assert read["devices"][1]["free"]["bytes"] == 10 * GIB


@given(st.integers(0, 24), st.integers(0, 2), st.lists(st.integers(0, 9), max_size=4))
def test_json_terms_sum_to_the_total(free, reserved, held):
    made = card(0, free=free * GIB, reserved=reserved * GIB, held=[(i, n * GIB) for i, n in enumerate(held)])
    device = json.loads(topjson.render(picture(made)))["devices"][0]
    parts = [device[name]["bytes"] for name in ("free", "driver_reserved", "unattributed")]

    assert sum(parts) + sum(held) * GIB == device["total"]["bytes"]


def test_the_documented_keys_are_there():
    read = topjson.document(picture(card(0), processes=[process(run="a")]))

    assert set(read) == {
        "gpumem_tui_top", "now_ns", "wall_ns", "host", "viewer", "driver", "simulated", "complete",
        "devices", "processes", "alarms", "events",
    }  # fmt: skip
    assert all(name in topjson.__doc__ for name in read["devices"][0])
    assert set(read["processes"][0]["run"]) == {
        "run", "rank", "phase", "step", "allocated_bytes", "reserved_bytes", "identified_by",
    }  # fmt: skip


def test_in_a_tree_ranks_stand_below_their_launcher_and_launchers_cannot_be_chosen():
    torchrun = (Ancestor(5, "torchrun", "bob", "torchrun train.py"),)
    ranks = [process(0, 11, ancestors=torchrun), process(1, 12, ancestors=torchrun)]
    sheet = screen(picture(card(0), card(1), processes=ranks), tree=True)
    shown = [plain(line).split() for line in sheet.lines]
    launcher = next(i for i, words in enumerate(shown) if words[:1] == ["5"])

    assert shown[launcher] == ["5", "bob", "torchrun", "train.py"]
    assert [words[1] for words in shown[launcher + 1 : launcher + 3]] == ["11", "12"]
    assert [words[-3] for words in shown[launcher + 1 : launcher + 3]] == ["├", "└"]
    assert topscreen.choose_at(sheet, launcher).chosen is None
    assert topscreen.choose_at(sheet, launcher + 1).chosen == (0, 11)


def test_the_details_say_who_started_a_process():
    ancestors = (Ancestor(5, "torchrun", "bob", "torchrun"), Ancestor(3, "bash", "bob", "bash"))
    state = picture(card(0), processes=[process(0, 11, ancestors=ancestors)])

    assert "started by torchrun 5 ← bash 3" in text(screen(state, chosen=(0, 11), details=True).lines)


def test_kinds_of_processes_that_were_refused_are_named_and_the_count_is_a_least_one():
    ill = card(0, processes_reason=Reason.NO_PERMISSION, processes_missing="G")
    shown = text(screen(picture(ill, processes=[process(0, 7)]), 120).lines)

    assert "GPU 0: graphics processes — no permission" in shown
    assert re.search(r"1\+\n", shown)


def test_the_name_that_all_cards_share_is_in_the_header_where_rows_have_no_room_for_it():
    alike = picture(card(0), card(1))
    different = picture(card(0), replace(card(1), name="Other"))
    lost = picture(card(0), replace(card(1), name=None))
    name = card(0).name

    assert f"2 cards: {name}" in plain(toppanels.header(alike, 100))
    assert f"2 cards: {name}" in plain(toppanels.header(lost, 100))
    assert name not in plain(toppanels.header(different, 100))
    assert name not in plain(toppanels.header(alike, 160))


def test_a_single_picture_says_when_it_was_made_and_has_no_column_of_changes():
    state = picture(card(0), processes=[process(0, 7)])
    shown = toptext.render(state, cells=120)

    assert re.search(r"here  2027-01-\d\d \d\d:\d\d:00", shown)
    assert "change" not in shown
    assert "change" in text(screen(state, 120).lines)


def test_of_cards_that_name_no_process_those_whose_list_is_not_known_are_told():
    state = picture(card(0), replace(card(1), processes_reason=Reason.NO_PERMISSION))

    assert "none; not known of GPU 1: no permission" in toptext.render(state)


@pytest.mark.parametrize("word", ["BOB", "Train", "77", "deep-run", "4242"])
def test_a_word_keeps_the_processes_that_have_it_anywhere(word):
    wanted = process(0, 77, user="bob", command="python train.py", run="deep-run", job="4242")
    other = process(0, 8, user="eve", command="serve", job="1")
    sheet = screen(picture(card(0), processes=[wanted, other]), word=word)

    assert [p.pid for p in sheet.rows] == [77]
    assert f"1 process of 2 by memory, with “{word}”" in text(sheet.lines)


def test_on_sixty_cells_all_sixteen_cards_are_figures_without_bars():
    shown = text(screen(MANY, 60, 18).lines)

    assert all(re.search(rf"(^| ){index} +\d", shown, re.MULTILINE) for index in range(16))
    assert shown.count("/24.00") == 16


@given(st.integers(1, 200), st.integers(0, 90))
def test_the_footer_is_as_wide_as_the_screen_and_leaving_stays_in_it(cells, said):
    status = (Span("x" * said, "warning"),) if said else ()
    line = topscreen.footer(status, paused=False, cells=cells)

    assert line_width(line) in (cells, said if cells < 60 else cells)
    assert "q leave" in plain(line) or cells < 60 or said > cells - 20


def test_a_figure_that_is_missing_has_room_for_its_reason():
    state = picture(card(0), processes=[process(0, 7, used=None), process(0, 8)])

    assert "— not supported " in text(screen(state, 80).lines)


def test_a_card_whose_used_holds_the_driver_s_share_says_so():
    old = card(0)
    used = replace(old.ledger.device_used, detail="includes driver-reserved")
    old = replace(old, ledger=replace(old.ledger, device_used=used))

    assert "GPU 0: used includes driver-reserved" in toptext.render(picture(old))
    assert "includes" not in toptext.render(picture(card(0)))

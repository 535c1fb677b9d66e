"""Other people's formats, read by other people's readers: csv, json, prometheus_client."""

import csv
import io
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tui import scripted

from gpumem_tui import records
from gpumem_tui.agent import wire
from gpumem_tui.analysis import provenance
from gpumem_tui.analysis.rankstate import Life, PeakState
from gpumem_tui.cli import exporter
from gpumem_tui.errors import BadInput, UnreadableRecording
from gpumem_tui.records import Header
from gpumem_tui.records.revision import Revision
from gpumem_tui.units import GIB, MIB
from gpumem_tui.views.export import metrics, ndjson, tables, trace
from gpumem_tui.views.export.source import names_of

SECOND, START = scripted.SECOND, scripted.START
RANK = Header(journal="rank", schema=1, pid=4700, t_ns=START, wall_ns=0)
DRIVER = Header(journal="driver", schema=1, pid=55, t_ns=START, wall_ns=0)
KEEPER = Header(journal="keeper", schema=1, pid=54, t_ns=START, wall_ns=0)

BEGIN = records.Begin(START + SECOND, 1, 1, None, 1 << 40, "forward", "Bert", 3, [(0, GIB, 4 * GIB)])
INNER = records.Begin(START + SECOND, 2, 2, 1, 1 << 40, "recompute", "", 3, [(0, GIB, 4 * GIB)])
INNER_END = records.End(START + SECOND + 4_000_000, 3, 2, None, [(0, GIB, 4 * GIB, 2 * GIB, 4 * GIB, True)])
END = records.End(
    START + SECOND + 5_000_000, 4, 1, "OutOfMemoryError", [(0, 2 * GIB, 4 * GIB, 3 * GIB, 5 * GIB, False)]
)
STREAM = [
    (RANK, records.Sample(START + 2 * SECOND, 0, GIB + 1, 2 * GIB)),
    (RANK, records.Sample(START + 3 * SECOND, 0, None, None)),
    (RANK, records.Samples(START, START + SECOND, 0, 10, (1, 9, 5), (10, 20, 20))),
    (RANK, BEGIN),
    (RANK, INNER),
    (RANK, INNER_END),
    (RANK, END),
    (RANK, records.Begin(START + 4 * SECOND, 5, 3, None, 1 << 40, "eval", "", None, [])),
    (RANK, records.Mark(START + 4 * SECOND, "empty_cache")),
    (RANK, records.Failure(START + 5 * SECOND, 0, 2 * GIB, "eval", 3)),
    (DRIVER, records.Memory(START + SECOND, 9, 0, 24 * GIB, 20 * GIB, 3 * GIB, GIB, 2)),
    (DRIVER, records.Memory(START + 2 * SECOND, 9, 0, reason="lost: GPU is lost")),
    (DRIVER, records.Memories(START, START + SECOND, 0, 4, 24 * GIB, (1, 2, 3), (7, 9, 8), None)),
    (
        DRIVER,
        records.Processes(START, 9, 0, [(4700, 3 * GIB, "C", None), (9, None, "C", "no permission")]),
    ),
    (DRIVER, records.Processes(START + SECOND, 9, 0, [], "hidden")),
    (KEEPER, records.Exit(START + 6 * SECOND, 1)),
]


def state(**changes):
    return scripted.with_phases(facts=scripted.facts(simulated="1 × 24 GiB", **changes))


def rows(table, told=None, stream=STREAM):
    written = "".join(tables.lines(table, told or state(), stream))
    return list(csv.DictReader(io.StringIO(written)))


def trace_of(told=None, stream=STREAM):
    return json.loads(b"".join(trace.chunks(told or state(), stream)))


def families(told):
    written = exporter.text_of(exporter.registry_of(lambda: [told])).decode()
    return {
        sample.name: [
            s
            for family in text_string_to_metric_families(written)
            for s in family.samples
            if s.name == sample.name
        ]
        for family in text_string_to_metric_families(written)
        for sample in family.samples
    }


# --- NDJSON ---------------------------------------------------------------------------------------


def test_every_record_is_a_line_with_the_fields_of_the_wire():
    head, *told = [json.loads(line) for line in ndjson.lines(state(), STREAM)]

    assert head["record"] == "run"
    assert head["cards"] == "SIMULATED 1 × 24 GiB"
    assert len(told) == len(STREAM)
    for line in told:
        assert list(line) == ["record", "writer", *wire.FIELDS[line["record"]]]
    assert told[0]["allocated_bytes"] == GIB + 1
    assert told[0]["writer"] == {"role": "rank", "pid": 4700, "rank": 0}
    assert told[1]["allocated_bytes"] is None


def test_no_field_of_the_wire_is_called_as_our_own_keys():
    assert not [field for fields in wire.FIELDS.values() for field in fields if field in ndjson.RESERVED]


# --- CSV ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", tables.TABLES)
def test_every_row_says_whose_it_is_and_that_the_cards_are_simulated(table):
    found = rows(table)

    assert found
    assert all(tuple(row) == tables.TABLES[table] for row in found)
    assert {(row["run"], row["cards"], row["recorded"]) for row in found} == {
        ("bert-ft", "SIMULATED 1 × 24 GiB", "false")
    }


def test_timeline_has_raw_bytes_one_counter_a_row():
    found = [
        row
        for row in rows("timeline")
        if row["source"] == "pytorch" and row["t_ns"] == str(START + 2 * SECOND)
    ]

    assert {row["counter"]: row["last_bytes"] for row in found} == {
        "allocated": str(GIB + 1),
        "reserved": str(2 * GIB),
    }
    assert {(row["rank"], row["device"], row["uuid"]) for row in found} == {("0", "0", "uuid-0")}
    assert found[0]["wall_ns"] == str(scripted.facts().started_wall_ns + 2 * SECOND)


def test_folded_rows_keep_their_range_and_their_interval():
    (row,) = [r for r in rows("timeline") if r["counter"] == "allocated" and r["high_bytes"] == "9"]

    assert (row["low_bytes"], row["last_bytes"]) == ("1", "5")
    assert (row["since_ns"], row["t_ns"]) == (str(START), str(START + SECOND))


def test_a_missing_figure_is_an_empty_field_with_its_reason():
    empty = [row for row in rows("timeline") if row["last_bytes"] == ""]

    assert {(row["counter"], row["reason"]) for row in empty} == {
        ("allocated", "not read"),
        ("reserved", "not read"),
        ("device total", "lost: GPU is lost"),
        ("device free", "lost: GPU is lost"),
        ("driver reserved", "lost: GPU is lost"),
        ("driver reserved", "not supported"),
        ("process used", "no permission"),
        ("process used", "hidden"),
    }
    assert all(row["reason"] == "" for row in rows("timeline") if row["last_bytes"] != "")


def test_spans_have_start_peak_and_end_apart():
    inner, outer = rows("spans")

    assert outer["phase"] == "forward"
    assert outer["error"] == "OutOfMemoryError"
    assert outer["exact"] == "false"
    assert outer["duration_ns"] == "5000000"
    figures = [
        outer[f"{at}_{counter}_bytes"]
        for at in ("start", "peak", "end")
        for counter in ("allocated", "reserved")
    ]
    assert figures == [str(n * GIB) for n in (1, 4, 3, 5, 2, 4)]
    assert inner["phase"] == "recompute"


def test_phases_and_ledger_are_those_of_the_state():
    told = state()

    assert [(r["phase"], r["kind"], r["peak_allocated_bytes"]) for r in rows("phases")] == [
        (row.phase, "cold" if row.cold else "warm", str(row.peak_allocated_bytes)) for row in told.phases
    ]
    terms = [row for row in rows("ledger") if row["term"] not in ("total",)]
    assert sum(int(row["bytes"]) for row in terms) == told.devices[0].ledger.total.bytes


def test_identity_is_a_table_whose_gaps_have_a_reason():
    identity = provenance.Identity(
        version="0.1.0", cwd="/w", protocol="observe", reset_peaks=True, hertz=10.0,
        revision=Revision(commit="0123456789abcdef", dirty=True), declared=(("batch", "8"),),
    )  # fmt: skip

    found = {row["name"]: row for row in rows("identity", state(identity=identity, labels=(("a", "b"),)))}

    assert found["commit"]["value"] == "0123456789abcdef"
    assert found["code revision"]["value"] == "0123456789ab with changed files"
    assert (found["declared batch"]["value"], found["label a"]["value"]) == ("8", "b")
    assert found["simulated"]["value"] == "1 × 24 GiB"
    assert (found["seed"]["value"], found["seed"]["reason"]) == ("", "not known")

    nowhere = msgspec.structs.replace(identity, revision=Revision(reason="no git repository"))
    found = {row["name"]: row for row in rows("identity", state(identity=nowhere))}

    assert (found["commit"]["value"], found["commit"]["reason"]) == ("", "no git repository")


def test_a_ledger_without_a_driver_is_reasons():
    found = rows("ledger", scripted.without_driver())

    assert {row["reason"] for row in found if row["bytes"] == ""} >= {"no driver"}
    assert not [row for row in found if row["bytes"] == "0"]


@given(name=st.text(max_size=20))
def test_any_name_survives_a_reader(name):
    begin = msgspec.structs.replace(BEGIN, name=name)

    (row,) = rows("spans", stream=[(RANK, begin), (RANK, END)])

    assert row["name"] == name


# --- traces ---------------------------------------------------------------------------------------


def test_events_are_in_order_of_time_and_of_kinds_that_viewers_know():
    told = trace_of()
    events = [event for event in told["traceEvents"] if event["ph"] != "M"]
    times = [event["ts"] for event in events]

    assert times == sorted(times)
    assert min(times) >= 0
    assert {event["ph"] for event in events} == {"X", "B", "C", "i"}
    for event in events:
        assert isinstance(event["pid"], int)
        assert 0 <= event["tid"] < 1 << 31
        assert isinstance(event["name"], str)
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    assert all(set(event["args"]) == {"bytes"} for event in events if event["ph"] == "C")
    assert told["otherData"]["cards"] == "SIMULATED 1 × 24 GiB"


def test_a_slice_that_holds_another_comes_first():
    slices = [event for event in trace_of()["traceEvents"] if event["ph"] == "X"]

    assert [event["name"] for event in slices] == ["forward Bert", "recompute"]
    assert slices[0]["ts"] == slices[1]["ts"] == 1_000_000
    assert slices[0]["dur"] == 5000
    assert slices[0]["args"]["error"] == "OutOfMemoryError"
    assert slices[0]["args"]["cuda:0 peak allocated bytes"] == 3 * GIB


def test_allocated_and_reserved_are_tracks_of_their_own():
    counters = [event for event in trace_of()["traceEvents"] if event["ph"] == "C" and event["pid"] == 4700]

    assert {event["name"] for event in counters} >= {"allocated cuda:0", "reserved cuda:0"}
    assert [e["args"]["bytes"] for e in counters if e["name"] == "allocated cuda:0"] == [5, GIB + 1]
    assert [e["args"]["bytes"] for e in counters if "highest" in e["name"]] == [9, 20]


def test_a_missing_reading_is_an_instant_and_no_counter():
    card = [event for event in trace_of()["traceEvents"] if event["pid"] == trace.CARD_PID]

    assert [e["name"] for e in card if e["ph"] == "i"] == ["reading missing: lost: GPU is lost"]
    assert 0 not in [e["args"]["bytes"] for e in card if e["ph"] == "C"]


def test_a_span_that_never_ended_has_no_end():
    (event,) = [event for event in trace_of()["traceEvents"] if event["ph"] == "B"]

    assert event["name"] == "eval"
    assert event["args"]["ended"] is False


def test_spans_that_the_process_has_summarised_are_one_slice_on_their_thread():
    folded = records.Spans(
        START, START + SECOND, "decode", "Bert", 0, False, 49, 0, (9, 9, 9), (1, 3 * GIB, 2), (4, 5, 4),
        (1, 2, 2), (4, 4, 4), inexact=0, seq=9, step=4, thread=1 << 40,
    )  # fmt: skip
    (slice_,) = [e for e in trace_of(stream=[(RANK, folded)])["traceEvents"] if e["ph"] == "X"]

    assert (slice_["name"], slice_["dur"]) == ("decode Bert × 49", 1_000_000)
    assert slice_["args"]["cuda:0 peak allocated bytes"] == 3 * GIB


def test_processes_of_the_trace_are_ranks_and_cards_and_say_simulated():
    named = {e["pid"]: e["args"]["name"] for e in trace_of()["traceEvents"] if e["name"] == "process_name"}

    assert named[4700] == "rank 0 (4700) (SIMULATED 1 × 24 GiB)"
    assert named[trace.CARD_PID].startswith("GPU 0, by the driver")
    assert all("SIMULATED" in name for name in named.values())


# --- Prometheus -----------------------------------------------------------------------------------


def test_the_terms_of_a_ledger_sum_to_the_device():
    found = families(state())

    total = found["gpumem_device_total_bytes"][0].value
    assert sum(s.value for s in found["gpumem_ledger_bytes"]) == total == 24 * GIB
    assert all(s.labels["cards"] == "SIMULATED 1 × 24 GiB" for group in found.values() for s in group)


def test_the_user_s_labels_are_labels_of_the_run():
    told = state(labels=(("my study", "a"), ("seed", "3")))

    (info,) = families(told)["gpumem_run_info"]

    assert (info.labels["label_my_study"], info.labels["label_seed"]) == ("a", "3")


def test_every_metric_is_described_and_has_a_unit_in_its_name():
    for name, (kind, meaning) in metrics.METRICS.items():
        assert name.startswith("gpumem_")
        assert name.endswith("_total") == (kind == "counter")
        assert meaning
    assert {sample.name for sample in metrics.samples(state())} <= metrics.METRICS.keys()


def test_a_missing_reading_has_no_sample_but_a_reason():
    found = families(scripted.without_driver())

    assert "gpumem_device_used_bytes" not in found
    missing = {(s.labels["metric"], s.labels["reason"]) for s in found["gpumem_missing"]}
    assert ("gpumem_device_used_bytes", "no driver") in missing


def test_a_negative_term_stays_negative():
    told = state()
    ledger = told.devices[0].ledger
    less = msgspec.structs.replace(ledger.unattributed, bytes=-5 * MIB)
    device = msgspec.structs.replace(
        told.devices[0], ledger=msgspec.structs.replace(ledger, unattributed=less)
    )

    found = families(msgspec.structs.replace(told, devices=(device,)))

    (term,) = [s for s in found["gpumem_ledger_bytes"] if s.labels["term"] == "unattributed"]
    assert term.value == -5 * MIB


def test_of_an_ended_run_only_facts_and_peaks_stay():
    told = scripted.ended(code=1)
    rank = msgspec.structs.replace(told.ranks[0], peaks=(PeakState(0, GIB, 2 * GIB),))
    facts = msgspec.structs.replace(told.facts, live=False, life=Life.FAILED)

    found = families(msgspec.structs.replace(told, ranks=(rank,), facts=facts))

    assert found["gpumem_run_up"][0].value == 0
    assert found["gpumem_run_exit_code"][0].value == 1
    assert found["gpumem_rank_peak_reserved_bytes"][0].value == 2 * GIB
    assert not {"gpumem_ledger_bytes", "gpumem_rank_allocated_bytes"} & found.keys()


def test_a_recording_that_is_gone_is_not_up():
    def read():
        raise UnreadableRecording("gone")

    written = exporter.text_of(exporter.registry_of(read)).decode()

    assert "gpumem_run_up 0.0" in written


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9435", ("127.0.0.1", 9435)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:9435", ("::1", 9435)),
    ],
)
def test_an_address_is_this_machine_alone_unless_told_otherwise(text, address):
    assert exporter.address_of(text) == address


@pytest.mark.parametrize("text", ["x", "1:", ":9", "65536", "-1", "0.0.0.0:", "1e3", "٣"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(BadInput, match="--serve"):
        exporter.address_of(text)


def test_names_are_those_that_the_state_tells():
    names = names_of(state())

    assert names.ranks == {4700: 0}
    assert names.devices == {(4700, 0): 0}
    assert names.wall_ns(START) == scripted.facts().started_wall_ns

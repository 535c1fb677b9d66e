"""The writer's schema and the reader's records are one."""

import json
import typing

import pytest

from gpumem_tui import records
from gpumem_tui.agent import wire
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.records.decode import Unknown

STRUCTS = {struct.__struct_config__.tag: struct for struct in typing.get_args(records.Record)}


def test_every_kind_has_its_record_and_the_other_way_round():
    assert set(STRUCTS) == set(wire.FIELDS)


@pytest.mark.parametrize("kind", sorted(wire.FIELDS))
def test_a_record_has_the_fields_of_its_kind_in_order(kind):
    assert STRUCTS[kind].__struct_fields__ == wire.FIELDS[kind]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("a\udcff", "a\ufffd"),
        ("\U0001f600\udc00\ud800", "\U0001f600\ufffd\ufffd"),
        ("한", "한"),
        ("\\ud800", "\\ud800"),
        ("\\\udcff", "\\\ufffd"),
    ],
)
def test_text_that_no_json_has_is_written_as_what_every_reader_takes(given, read):
    assert records.decode_line(wire.encode("bye", 7, given)) == records.Bye(7, read)
    assert records.decode_header(
        wire.encode_header({**wire.header("rank", "r", 0), "argv": [given]})
    ).argv == [read]


def test_a_line_of_an_older_writer_lacks_the_new_fields_only():
    assert records.decode_line(b'["sample",7,0,512]') == records.Sample(7, 0, 512)


def test_a_line_of_a_newer_writer_keeps_what_is_known():
    line = wire.encode("bye", 7, "exit", "something", {"of": "tomorrow"})

    assert records.decode_line(line) == records.Bye(7, "exit")


def test_a_kind_of_tomorrow_is_unknown_and_not_corrupt():
    assert records.decode_line(b'["aura",7,1]') == Unknown("aura")


@pytest.mark.parametrize(
    "line", [b"", b"\n", b'["sample",7', b'["sample","x",0]', b"\xff\xfe", b"[" * 100_000]
)
def test_a_torn_or_corrupt_line_is_no_record(line):
    assert records.decode_line(line) is None


def test_the_header_describes_the_fields_by_itself():
    head = wire.header("driver", "a-run", 3)

    read = records.decode_header(wire.encode_header(head))

    assert read is not None
    assert (read.journal, read.run, read.segment) == ("driver", "a-run", 3)
    assert read.fields["bye"] == ["t_ns", "reason"]


def test_a_newer_schema_is_refused_in_one_clear_line():
    head = {**wire.header("driver", "a-run", 0), "schema": wire.SCHEMA + 1}

    with pytest.raises(UnreadableRecording, match="newer gpumem-tui"):
        records.decode_header(json.dumps(head).encode())

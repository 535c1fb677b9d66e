"""Typed records: the reader's side of the schema that ``agent.wire`` owns.

Each kind of line is one frozen struct; field for field the same as ``wire.FIELDS``
(a test holds them together). A value that could not be read is ``None``; where the
writer knew why, the record's ``reason`` says so.
"""

from gpumem_tui.records.decode import Header, decode_header, decode_line
from gpumem_tui.records.kinds import (
    Begin,
    Bye,
    Composition,
    Device,
    Dropped,
    End,
    Exit,
    Failure,
    Gpu,
    Host,
    Inputs,
    Load,
    Mark,
    Memories,
    Memory,
    Output,
    Process,
    Processes,
    Rank,
    Record,
    Sample,
    Samples,
    Signal,
    Spans,
    Start,
    Torch,
    Tree,
    Word,
)
from gpumem_tui.records.reasons import Reason

__all__ = [
    "Begin",
    "Bye",
    "Composition",
    "Device",
    "Dropped",
    "End",
    "Exit",
    "Failure",
    "Gpu",
    "Header",
    "Host",
    "Inputs",
    "Load",
    "Mark",
    "Memories",
    "Memory",
    "Output",
    "Process",
    "Processes",
    "Rank",
    "Reason",
    "Record",
    "Sample",
    "Samples",
    "Signal",
    "Spans",
    "Start",
    "Torch",
    "Tree",
    "Word",
    "decode_header",
    "decode_line",
]

"""Why a part of a failure record is missing."""

from __future__ import annotations


class Absent(Exception):
    """A part that is not to be had; its text is the reason, as the record says it."""

"""Why a call of the driver gave no value: one of the closed reasons, and the driver's own word.

In a record both stand in one string, ``lost: GPU is lost``, so that a line explains
itself; :func:`parse_fault` takes it apart again.
"""

from gpumem_tui.records import Reason


class Fault(Exception):
    """A call gave no value. Caught where the call was made, and turned into a record."""

    def __init__(self, reason: Reason, word: str = "", code: int | None = None) -> None:
        """``word`` is the driver's own; ``code`` NVML's error number, where it was one."""
        super().__init__(reason, word, code)
        self.reason = reason
        self.word = word
        self.code = code

    @property
    def text(self) -> str:
        """What stands in a record: ``not supported`` or ``failed: Unknown Error``."""
        if not self.word or self.word.lower() == self.reason.value:
            return self.reason.value
        return f"{self.reason.value}: {self.word}"


def parse_fault(text: str) -> Fault:
    """Take a record's reason apart; what is not known here is ``unknown`` with the text as its word."""
    head, _, word = text.partition(": ")
    try:
        return Fault(Reason(head), word)
    except ValueError:
        return Fault(Reason.UNKNOWN, text)

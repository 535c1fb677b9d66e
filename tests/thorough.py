"""How thorough the tests are: ``GPUMEM_TUI_THOROUGH=1`` looks at 25 times as many examples."""

import os

THOROUGH = os.environ.get("GPUMEM_TUI_THOROUGH", "") not in ("", "0")

EXAMPLES = 1000 if THOROUGH else 40
"""How many examples hypothesis makes where a test does not say how many."""


def examples(few: int) -> int:
    """How many examples of something slow: few, or 25 times as many."""
    return 25 * few if THOROUGH else few

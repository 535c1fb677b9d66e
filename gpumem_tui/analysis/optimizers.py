"""What an optimizer's first step will keep, by its class: how many bytes for each byte of parameters.

Assumed from the classes' own documentation; a class that is not listed is not guessed.
"""

from collections.abc import Collection

MOMENTS = {
    "Adam": 2.0,
    "AdamW": 2.0,
    "NAdam": 2.0,
    "RAdam": 2.0,
    "Adamax": 2.0,
    "Lamb": 2.0,
    "LAMB": 2.0,
    "Adadelta": 2.0,
    "Rprop": 2.0,
    "Lion": 1.0,
    "RMSprop": 1.0,
    "SGD": 0.0,
}
"""State made in the first step without options, as multiples of the parameters' own bytes."""

MORE = {"momentum": 1.0, "amsgrad": 1.0, "centered": 1.0}
"""What an option adds, of those classes to which it belongs."""

_TAKES = {
    "SGD": ("momentum",),
    "RMSprop": ("momentum", "centered"),
    "Adam": ("amsgrad",),
    "AdamW": ("amsgrad",),
}


def first_step_bytes(optimizer: str, parameters_bytes: int, options: Collection[str] = ()) -> int | None:
    """State that the first step makes; None for a class that is not known."""
    name = optimizer.partition(" ")[0].rpartition(".")[2]
    moments = MOMENTS.get(name)
    if moments is None:
        return None
    moments += sum(MORE[option] for option in _TAKES.get(name, ()) if option in options)
    return round(moments * parameters_bytes)

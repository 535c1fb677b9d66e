"""``replay``: the same view on a recording; a run that goes on is simply attached to."""

from gpumem_tui.cli.attach import describe, run

__all__ = ["describe", "run"]

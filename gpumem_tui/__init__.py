"""Where is every byte on this card, now and at the moment it failed?

Imports go down only (checked by import-linter, see pyproject.toml)::

    cli                          verbs; each imports its layer inside run()
    views.tui   views.report     what people see
    keeper  recorder  session    launch · record · recording -> state for views
    analysis                     pure arithmetic: ledger, pairing, series
    sources     journal          driver and host readings · append-only files
    records                      typed records, the reader's side of the schema
    agent                        inside the workload; owns the wire schema
    simcard                      the simulated card, apart
    errors, units                leaves

A recording on disk is the product's truth: the agent and the recorder write it,
everything that people look at only reads it.
"""

from gpumem_tui.workload import mark, phase

__all__ = ["load_ipython_extension", "mark", "phase"]
__version__ = "0.1.0"


def load_ipython_extension(shell: object) -> None:
    """``%load_ext gpumem_tui``: what IPython calls. By name, since whoever reads this needs none of it."""
    import importlib

    importlib.import_module("gpumem_tui.notebook").load(shell)

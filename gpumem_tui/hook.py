"""``import gpumem_tui.hook``: start the agent by hand, where the environment does not reach.

For programs whose launcher drops ``PYTHONPATH`` but keeps ``GPUMEM_TUI_RUN``, and for
interpreters started with ``-I`` or ``-E``. Without a run it does nothing.
"""

import sys

if "_gpumem_tui_agent" not in sys.modules:
    from gpumem_tui import agent

    sys.modules["_gpumem_tui_agent"] = agent
    agent.start()

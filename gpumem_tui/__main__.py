"""``python -m gpumem_tui``."""

from gpumem_tui.cli import main

raise SystemExit(main())

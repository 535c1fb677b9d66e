"""``python -m gpumem_tui.recorder RUN_DIRECTORY``: started detached, beside a keeper."""

import sys

from gpumem_tui.recorder.main import main

sys.exit(main(sys.argv[1:]))

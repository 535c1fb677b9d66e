"""The agent: runs inside the user's process, reads PyTorch's counters, writes this process's journal.

Bottom layer: standard library only, Python 3.8 syntax, relative imports only,
because the workload's interpreter is not ours and may not have this package
installed (``site/sitecustomize.py`` loads it by path). It never initialises CUDA,
never creates a context, never synchronises, and never raises into the user's program.
"""

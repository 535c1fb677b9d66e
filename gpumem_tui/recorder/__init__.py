"""The recorder: a process of its own that writes the driver's journal of a run.

Reads the driver, host memory and the workload's process tree; keeps the recording
within its disk budget. Never in the workload's way: it talks to nobody, and what it
cannot write it counts.
"""

"""What observes the world: the driver (through NVML), host memory, processes.

Everything here reads and nothing here writes, neither to files nor to devices. A
reading that fails is a record with a reason. pynvml is imported by ``nvml`` alone,
and only when a driver is opened.
"""

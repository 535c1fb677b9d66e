"""What is found out after a failure, each part on its own: pools, driver, parts, settings, host, history.

Parts are functions that return JSON-able values in the shapes of ``records.failure``
and raise :class:`~.absent.Absent` with the reason where there is nothing to be had.
They are called by ``agent.failures`` within its time limits, on the failing thread
but for the driver; none runs code of the user's and none allocates device memory.
"""

"""Device memory that PyTorch's allocator does not know, as other libraries take it.

::

    block = Block(200 << 20)     # on the current device, by cudaMalloc
    block.free()

Works in a process that has imported torch, on simulated and on real cards. Stands
alone: a workload may load it by its path, in any Python 3.
"""

import ctypes


class Block:
    """A piece of device memory."""

    def __init__(self, size: int) -> None:
        """Take ``size`` bytes, or raise :class:`MemoryError`."""
        self._runtime = ctypes.CDLL(None)
        self.pointer = ctypes.c_void_p()
        error = self._runtime.cudaMalloc(ctypes.byref(self.pointer), ctypes.c_size_t(size))
        if error:
            self._runtime.cudaGetLastError()
            raise MemoryError(f"cudaMalloc of {size} bytes: CUDA error {error}")

    def free(self) -> None:
        """Give it back."""
        self._runtime.cudaFree(self.pointer)
        self.pointer = ctypes.c_void_p()

"""Why a value is missing: a short closed list, so that screens and JSON can rely on it."""

from enum import Enum


class Reason(str, Enum):
    """Why there is no value. The text is what people read; it is stable in JSON."""

    NOT_READ_YET = "not read yet"
    NOT_SUPPORTED = "not supported"
    NO_PERMISSION = "no permission"
    LOST = "lost"
    """NVML: GPU_IS_LOST or RESET_REQUIRED."""
    HIDDEN = "hidden"
    """The driver knows it and does not tell here: another pid namespace, an empty list."""
    STALE = "stale"
    """There was a value; it is too old to stand for now."""
    NO_DRIVER = "no driver"
    """libnvidia-ml is not there, or the kernel module is not loaded."""
    DRIVER_MISMATCH = "driver and library versions differ"
    FAILED = "failed"
    """Any other error; the record's detail has the driver's own word."""
    UNAVAILABLE = "counters unavailable"
    """PyTorch has none here: pluggable allocator, or caching switched off."""
    ENDED = "process ended"
    UNKNOWN = "unknown"
    """No evidence either way."""

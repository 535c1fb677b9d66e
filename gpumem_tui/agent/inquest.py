"""All that is looked into beyond the essentials of a failure, each part timed, none in the way of another.

Holds the failing allocation up for :data:`LIMIT_NS` at most, but for the memory history
that only ``run --history`` asks for. Loaded only where CUDA is in use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from . import identity, wire
from .autopsy import driver, history, host, parts, pools, settings
from .autopsy.absent import Absent
from .guard import is_the_users

if TYPE_CHECKING:
    from .process import Monitored

LIMIT_NS = 300_000_000
"""How long a failing allocation may be held up for what is written beyond the essentials."""

MOST_DUMPS = 5
"""Memory histories of one process, each of which may be tens of megabytes."""


class Inquest:
    """One for each process; ``stats`` reads the counters of a device, where they may be read."""

    def __init__(
        self, monitored: "Monitored", torch: Any, stats: Callable[[int], Optional[Dict[str, Any]]]
    ) -> None:
        self._monitored = monitored
        self._torch = torch
        self._stats = stats
        self._dumped = 0
        self._asking: Optional[driver.Asking] = None

    def fill(self, record: Dict[str, Any], began: int) -> None:
        """Fill in every part of a record, or why it is missing. The failure ``began`` then."""
        record["missing"] = {}
        ordinal = record["ordinal"]
        asking = self._ask_driver(record, ordinal)
        snapshot = self._part(record, "pools", lambda: self._pools(record, ordinal))
        self._part(record, "settings", lambda: self._settings(record, ordinal, snapshot))
        self._part(record, "host", lambda: record.update(host=host.read_own(self._torch)))
        self._part(record, "parts", lambda: self._parts(record, ordinal, began))
        if asking is not None:
            asking.join(max(0.0, (began + LIMIT_NS - wire.now_ns()) / 1e9))
            record["driver"] = asking.reading
            if asking.reading is None:
                record["missing"]["driver"] = asking.reason
            else:
                record["took_ns"]["driver"] = asking.reading["took_ns"]

    def _part(self, record: Dict[str, Any], name: str, look: Any) -> Any:
        """One part, timed. It is missing with its reason where it is absent or an error of ours came up."""
        began = wire.now_ns()
        try:
            return look()
        except Absent as absent:
            record["missing"][name] = str(absent)
        except Exception as error:
            if is_the_users(error):
                raise
            record["missing"][name] = "%s: %s" % (type(error).__name__, str(error).partition("\n")[0])
        finally:
            record["took_ns"][name] = wire.now_ns() - began
        return None

    def _ask_driver(self, record: Dict[str, Any], ordinal: Optional[int]) -> Optional[driver.Asking]:
        before, device = self._asking, self._device(ordinal)
        if before is not None and before.is_alive():
            record["missing"]["driver"] = "the driver still owes an answer of the failure before"
        elif device is None or device.identified_by == "nothing":
            record["missing"]["driver"] = "the device has no identity that the driver knows"
        elif self._torch.version.cuda is None:
            record["missing"]["driver"] = "read by NVML on CUDA only"
        else:
            asking = driver.Asking(device.uuid, device.pci)
            try:
                asking.start()
            except RuntimeError as error:
                record["missing"]["driver"] = str(error)  # no more threads, or the interpreter ends
                return None
            self._asking = asking
            return asking
        return None

    def _device(self, ordinal: Optional[int]) -> Optional[identity.DeviceFacts]:
        if ordinal is None:
            return None
        known = self._monitored.devices.get(ordinal)
        return known or identity.DeviceFacts(ordinal, self._torch.cuda.get_device_properties(ordinal))

    def _pools(self, record: Dict[str, Any], ordinal: Optional[int]) -> Dict[str, Any]:
        if ordinal is None:
            raise Absent("no device is known to be concerned")
        if self._monitored.reading.custom_pools:
            raise Absent("a custom allocator is in use: a snapshot could deadlock with it")
        snapshot = pools.take_snapshot(self._torch, self._stats(ordinal))
        record["pools"] = pools.fold(snapshot["segments"], ordinal)
        return snapshot

    def _settings(self, record: Dict[str, Any], ordinal: Optional[int], snapshot: Any) -> None:
        _, _, _, backend, text, _ = identity.torch_facts(self._torch)
        record["settings"] = settings.read(self._torch, ordinal or 0, backend, text, snapshot)

    def _parts(self, record: Dict[str, Any], ordinal: Optional[int], began: int) -> None:
        if ordinal is None:
            raise Absent("no device is known to be concerned")
        until = min(wire.now_ns() + parts.BUDGET_NS, began + LIMIT_NS)
        phases = self._monitored.phases
        modules = phases.roots.living() if phases is not None else []
        optimizers = phases.optimizers.living() if phases is not None else []
        record["parts"] = parts.walk(self._torch, ordinal, until, modules, optimizers)

    def add_history(self, record: Dict[str, Any], path: str) -> bool:
        """Dump the allocator's history beside the record at ``path``; False where nobody asked for it.

        Takes its time: only after all else is safe.
        """
        if not self._monitored.keeps_history:
            return False
        if self._dumped == MOST_DUMPS:
            record["missing"]["history"] = "left out: %d were dumped before" % MOST_DUMPS
            return True
        self._dumped += 1
        dumped = os.path.splitext(path)[0] + ".pickle"

        def dump() -> None:
            history.dump(self._torch, dumped)
            record["history"] = "failures/" + os.path.basename(dumped)

        self._part(record, "history", dump)
        return True

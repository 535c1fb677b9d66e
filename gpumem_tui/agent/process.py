"""The process under the monitor: its life from ``import torch`` to its end, and what hangs on each moment.

::

    import torch        patches are installed; nothing is written, no thread runs
    CUDA initialised    journal, ring and sampler start (or at the first span, on a CPU-only build)
    fork                the child forgets all of it; it starts anew if it initialises CUDA itself
    exit                the sampler writes what is left and says goodbye

Launchers, data-loader workers and compile workers never initialise CUDA and stay silent.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections import deque
from typing import Any, Deque, Dict, List, Mapping, Optional, Tuple

from . import composition, identity, wire
from .counters import Counters
from .failures import Failures
from .guard import contain, contained
from .importhook import after_import
from .inputs import Inputs
from .journal import Journal
from .patches import AFTERWARDS, custom_allocators, patch_torch
from .phases import Phases
from .ring import Ring
from .sampler import Sampler
from .spans import Spans

VERSION = "0.1.0"
LONGEST_WAIT_S = 0.05
"""How long the first span may wait for the journal to be opened."""


class Monitored:
    """The one object of the agent in a process."""

    def __init__(self, run: str, environment: Mapping[str, str]) -> None:
        self.run = run
        self._hertz = float(environment.get("GPUMEM_TUI_HERTZ") or 10)
        self._reset_peaks = environment.get("GPUMEM_TUI_PEAKS") != "keep"
        self._strict = environment.get("GPUMEM_TUI_PROTOCOL") == "strict"
        self._environment = environment
        self._torch: Any = None
        self.inputs: Optional[Inputs] = None
        self._phases: Optional[Phases] = None
        self._starting = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """The state of a process that has not started to be monitored."""
        self.pid = os.getpid()
        self.started = wire.started_ticks(self.pid) or 0
        self.journal: Optional[Journal] = None
        self.ring: Optional[Ring] = None
        self.spans: Optional[Spans] = None
        self.counters: Optional[Counters] = None
        self.sampler: Optional[Sampler] = None
        self.rank: Optional[int] = None
        self.active: Tuple[int, ...] = ()
        """Ordinals of the devices that this process uses."""
        self.last_samples: Dict[int, List[Any]] = {}
        self._lines: Deque[bytes] = deque(maxlen=10_000)
        self._reading = False
        self._waited = False
        self._marked: Dict[str, Tuple[int, int]] = {}
        self._composed_ns = 0
        self._composed = 0
        self.custom_pools = 0
        """Threads inside a memory pool with an allocator that may re-enter Python."""
        self._custom = False

    @property
    def phases(self) -> Optional[Phases]:
        """The phases of this process, once torch is imported."""
        return self._phases

    # --- import torch, CUDA initialised ------------------------------------------------------

    def on_torch(self, torch: Any) -> None:
        """Right after the user's import: install the patches, wait for CUDA without initialising it."""
        self._torch = torch
        atexit.register(self.on_exit)
        phases = self._phases = Phases(torch)
        phases.wait_for_journal = self._wait_for_journal
        phases.on_device = self.on_device
        phases.on_group = self._on_process_group
        phases.on_mark = self.mark
        phases.on_look = self.look_around
        phases.on_first = self.note_current
        phases.on_step_end = self.compose
        self.inputs = Inputs(torch.Tensor)
        phases.on_inputs = self.inputs.take
        for module, patch in AFTERWARDS.items():
            after_import(module, functools.partial(patch, phases=phases))
        patch_torch(torch, phases)
        custom_allocators(torch, self)
        if hasattr(torch._C, "_cuda_memoryStats"):
            self.counters = Counters(torch, self._reset_peaks)
            self.counters.install(torch)
            torch.cuda._lazy_call(self._on_cuda)

    @contained("CUDA initialised")
    def _on_cuda(self) -> None:
        """Called by torch inside its initialisation, under its lock: start a thread and return."""
        threading.Thread(target=self._start_after_cuda, name="gpumem-tui start", daemon=True).start()

    @contained("start after CUDA")
    def _start_after_cuda(self) -> None:
        torch, pause = self._torch, threading.Event()
        with self._starting:
            for attempt in range(2000):  # the rest of torch's own initialisation: milliseconds
                if torch.cuda.is_initialized():
                    self._start()
                    return
                pause.wait(0.001 if attempt < 1000 else 0.05)

    def _wait_for_journal(self) -> Optional[Spans]:
        """A span would begin before the start is through: wait for it once, never for a slow disk."""
        if not self._waited and self._torch.cuda.is_initialized():
            self._waited = True
            if self._starting.acquire(timeout=LONGEST_WAIT_S):
                self._starting.release()
        return self._phases.spans if self._phases is not None else None

    def on_device(self, ordinal: int) -> None:
        """A span begins on this device."""
        if ordinal not in self.active:
            self.active = tuple(sorted(self.active + (ordinal,)))

    def note_current(self) -> None:
        """On a user's thread: before any device is used, the current one is where memory will go."""
        if not self.active and self._reading:
            self.on_device(self._torch._C._cuda_getDevice())

    def _start(self) -> None:
        """Open journal and ring, say who this is, start the sampler. Once a process, on a thread of ours."""
        if self.journal is None:
            about: Dict[str, Any] = {
                "parent": os.getppid(),
                "argv": list(getattr(sys, "argv", []))[:64],
                "executable": sys.executable,
                "python": "%d.%d.%d" % sys.version_info[:3],
                "agent": VERSION,
            }
            self.ring = self._make_ring()
            if self.ring is not None:
                about["ring"] = os.path.basename(self.ring.path)
                self.spans = Spans(self.ring, self.readable)
                self.spans.counters = self.counters
                if self._strict:
                    self.spans.before_boundary = self._synchronize
                if self.counters is not None:
                    self.counters.on_user_reset = self.spans.keep_peaks
            name = os.path.basename(self.run.rstrip("/"))
            self.journal = Journal(
                os.path.join(self.run, "journal"), "rank", name, self.pid, self.started, **about
            )
            self._introduce()
            if self._phases is not None:
                self._phases.spans = self.spans
            self.sampler = Sampler(self, self._hertz)
            self.sampler.tick()
            self.sampler.start()
            self._end_with_multiprocessing()

    def _make_ring(self) -> Optional[Ring]:
        folder = os.path.join(self.run, "rings")
        for number in range(100):  # after exec, the same process makes another
            path = os.path.join(folder, "%d-%d.%04d.ring" % (self.pid, self.started, number))
            try:
                return Ring(path, self.pid, self.started)
            except FileExistsError:
                continue
            except OSError as error:
                self.say("no ring", "spans are not recorded: %s" % error)
                return None
        return None

    def _introduce(self) -> None:
        now = wire.now_ns()
        rank = identity.rank_of(self._environment)
        if rank is not None:
            self.rank = rank[0]
            self.tell("rank", now, rank[0], rank[1], rank[2], rank[3], "environment")
        torch = self._torch
        if self._strict:
            self.say(
                "strict protocol", "every phase boundary waits for the device: overlap is not as without"
            )
        facts = identity.torch_facts(torch)
        self.tell("torch", now, *facts)
        if self.counters is None or not torch.cuda.is_initialized():
            return
        for device in identity.devices_of(torch):
            self.tell(
                "device", now, device.ordinal, device.uuid, device.pci, device.name, device.total_bytes,
                device.identified_by,
            )  # fmt: skip
        _, _, _, allocator, _, caching = facts
        self._reading = True
        if allocator == "pluggable":
            self.stop_reading("pluggable allocator", "allocator is pluggable: PyTorch counters unavailable")
        elif not caching:
            self.stop_reading(
                "caching disabled",
                "PYTORCH_NO_CUDA_MEMORY_CACHING is set: PyTorch counts nothing, its zeros are not shown",
            )
        if allocator == "native" and not Failures(self, os.path.join(self.run, "failures")).attach(torch):
            self.say("no observer", "this PyTorch does not tell of failing allocations as they happen")

    # --- reading ------------------------------------------------------------------------------

    def may_read(self) -> bool:
        """Whether a thread of ours may read counters now."""
        return self._reading and not self._custom

    def readable(self) -> Tuple[int, ...]:
        """Devices whose counters the calling user thread may read at a boundary."""
        return self.active if self._reading and not self.custom_pools else ()

    def stop_reading(self, code: str, text: str) -> None:
        """Counters are not to be had, or not to be trusted: say so once, and never read again."""
        if self._reading:
            self._reading = False
            self.say(code, text)

    def on_custom_allocator(self) -> None:
        """An allocator that may call Python exists: from now on, only boundaries on user threads read."""
        if not self._custom:
            self._custom = True
            self.say(
                "custom allocator",
                "a custom allocator is in use: counters are read at phase boundaries only "
                "(reading them from another thread could deadlock)",
            )

    def look_around(self) -> None:
        """Which devices this process has come to use."""
        counters = self.counters
        if counters is None or not self._reading or self.custom_pools:
            return
        for ordinal in range(self._torch.cuda.device_count()):
            if ordinal not in self.active:
                stats = counters.sample(ordinal)
                if stats["reserved_bytes"]["all"]["current"]:
                    self.active = tuple(sorted(self.active + (ordinal,)))

    def unused(self) -> Tuple[int, ...]:
        """Visible devices that this process has not used."""
        return tuple(i for i in range(self._torch.cuda.device_count()) if i not in self.active)

    # --- telling ------------------------------------------------------------------------------

    def tell(self, kind: str, *values: Any) -> None:
        """A line for the journal, from any thread; written by the sampler."""
        self._lines.append(wire.encode(kind, *values))

    def say(self, code: str, text: str) -> None:
        """A word on how this process is measured."""
        self.tell("word", wire.now_ns(), code, text)

    def take_lines(self) -> List[bytes]:
        """Lines told since the last call."""
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        return lines

    def mark(self, name: str, detail: Optional[str] = None) -> None:
        """A marker; of the same name at most one a second, with the count of those left out."""
        now = wire.now_ns()
        last, left_out = self._marked.get(name, (0, 0))
        if detail is None and now - last < 1_000_000_000:
            self._marked[name] = (last, left_out + 1)
            return
        self._marked[name] = (now, 0)
        self.tell("mark", now, name, detail or ("%d more since the last" % left_out if left_out else None))

    @contained("composition")
    def compose(self) -> None:
        """At the end of an optimizer step: what memory is made of; after two steps, then every 30 s."""
        now, phases = wire.now_ns(), self._phases
        if phases is None or self.spans is None or self.custom_pools:
            return
        if self._composed >= 2 and now - self._composed_ns < composition.EVERY_NS:
            return
        self._composed += 1
        self._composed_ns = now
        roots, optimizers = phases.roots.living(), phases.optimizers.living()
        sizes, complete, took_ns = composition.walk(roots, optimizers)
        for ordinal, of in sizes.items():
            levels = self.counters.sample(ordinal) if self.counters and ordinal in self.readable() else None
            allocated = levels["allocated_bytes"]["all"]["current"] if levels else None
            values = [of[kind] for kind in composition.KINDS]
            step = phases.steps.count
            self.tell("composition", now, ordinal, step, *values, allocated, complete, took_ns)

    def _synchronize(self, ordinal: int) -> None:
        """``--protocol strict``: wait for the device's work; not while a graph is being captured."""
        cuda = self._torch.cuda
        if not cuda.is_current_stream_capturing():
            cuda.synchronize(ordinal)

    def _on_process_group(self, distributed: Any) -> None:
        if not distributed.is_initialized():
            self.tell("mark", wire.now_ns(), "process group destroyed")
            return
        rank, size = distributed.get_rank(), distributed.get_world_size()
        self.rank = rank
        known = identity.rank_of(self._environment)
        local, local_size = (known[1], known[3]) if known else (None, None)
        now = wire.now_ns()
        self.tell("rank", now, rank, local, size, local_size, "process group")
        self.tell("mark", now, "process group", distributed.get_backend())

    # --- the end ------------------------------------------------------------------------------

    def say_goodbye(self) -> None:
        """The sampler's last act."""
        if self.journal is not None:
            self.journal.append("bye", wire.now_ns(), "exit")
            self.journal.flush()

    def on_exit(self) -> None:
        """At the end of the interpreter, after the user's own handlers; waits 0.2 s at most."""
        if self._starting.acquire(timeout=LONGEST_WAIT_S):
            self._starting.release()
        if self.sampler is not None:
            self.sampler.stop(0.15)

    def _end_with_multiprocessing(self) -> None:
        """Children of multiprocessing end without atexit; their own finalizers run."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None and sys.modules["multiprocessing"].parent_process() is not None:
            util.Finalize(None, self.on_exit, exitpriority=-100)

    def after_fork(self) -> None:
        """In a forked child: nothing of the parent's is ours, and its files stay as they are."""
        if self.journal is not None:
            self.journal.abandon()
        counters, phases = self.counters, self._phases
        self._starting = threading.Lock()
        self.forget()
        self.counters = counters
        if counters is not None:
            counters.forget_lock()
        if phases is not None:
            phases.forget()


def begin(run: str) -> Monitored:
    """The agent's object of this process, minding forks."""
    monitored = Monitored(run, os.environ)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _after_fork(monitored))
    return monitored


def _after_fork(monitored: Monitored) -> None:
    try:
        monitored.after_fork()
    except Exception as error:  # noqa: BLE001  the named boundary: fork must succeed
        contain("after fork", error)

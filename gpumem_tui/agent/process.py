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
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple

from . import identity, wire
from .aside import Aside
from .counters import Counters, Levels
from .endings import Endings
from .failures import Failures
from .groups import Groups
from .guard import contain, contained
from .importhook import after_import
from .inputs import Inputs
from .journal import Journal
from .makeup import Makeup
from .patches import AFTERWARDS, custom_allocators, initialisation, patch_torch
from .phases import Phases
from .reading import Reading
from .ring import ENDING, Ring
from .sampler import Sampler
from .spans import Spans

if TYPE_CHECKING:
    from .maps import Maps

VERSION = "0.1.0"
FLUSH_S = 0.1
"""How long a failing program may wait until its journal is written."""
LONGEST_WAIT_S = 0.5
"""How long the first spans may wait for the journal to be opened: usually it takes a few milliseconds."""
EXIT_WAIT_S = 0.2
"""How long the end of the interpreter may wait for a start that is not through."""


class Monitored:
    """The one object of the agent in a process."""

    def __init__(self, run: str, environment: Mapping[str, str]) -> None:
        self.run = run
        self._hertz = float(environment.get("GPUMEM_TUI_HERTZ") or 10)
        self._reset_peaks = environment.get("GPUMEM_TUI_PEAKS") != "keep"
        self.strict = environment.get("GPUMEM_TUI_PROTOCOL") == "strict"
        self.keeps_history = environment.get("GPUMEM_TUI_HISTORY") == "1"
        """Whether the allocator's history was asked for, to be dumped at a failure."""
        self._environment = environment
        self.torch: Any = None
        self.inputs: Optional[Inputs] = None
        self._endings = Endings(self)
        self._phases: Optional[Phases] = None
        self.reading = Reading(self)
        self.groups = Groups(self, environment)
        self._makeup: Optional[Makeup] = None
        self._starting = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """The state of a process that has not started to be monitored."""
        self.reading.forget()
        self.groups.forget()
        if self._makeup is not None:
            self._makeup.forget()
        self.pid = os.getpid()
        self.started = wire.started_ticks(self.pid) or 0
        self.journal: Optional[Journal] = None
        self.ring: Optional[Ring] = None
        self.spans: Optional[Spans] = None
        self.counters: Optional[Counters] = None
        self.sampler: Optional[Sampler] = None
        self.rank: Optional[int] = None
        self.last_samples: Dict[int, List[Any]] = {}
        self.devices: Dict[int, identity.DeviceFacts] = {}
        self.failures: Optional[Failures] = None
        self.maps: Optional["Maps"] = None
        """None until CUDA is initialised."""
        self._initialised: Optional[int] = None
        """When CUDA was initialised, in nanoseconds; None where that was before us."""
        self._finalizes = False
        self._observed = False
        self._observing = threading.RLock()  # a signal handler may initialise what is just being so
        self._lines: Deque[bytes] = deque(maxlen=10_000)
        self._wait_until = 0
        self._through = threading.Event()
        """Set once the start after CUDA is through, however it went."""
        self._marked: Dict[str, Tuple[int, int, int]] = {}  # told last at, left out since, latest at

    @property
    def phases(self) -> Optional[Phases]:
        """The phases of this process, once torch is imported."""
        return self._phases

    # --- import torch, CUDA initialised ------------------------------------------------------

    def on_torch(self, torch: Any) -> None:
        """Right after the user's import: install the patches, wait for CUDA without initialising it."""
        self.torch = torch
        atexit.register(self.on_exit)
        phases = self._phases = Phases(torch)
        phases.wait_for_journal = self._wait_for_journal
        phases.on_device = self.reading.on_device
        phases.on_look = self.reading.look_around
        phases.on_first = self.reading.note_current
        phases.on_group = self.groups.on_change
        phases.on_mark = self.mark
        makeup = self._makeup = Makeup(self, torch)
        phases.on_step_end = makeup.at_step_end
        phases.on_optimizer = makeup.foresee
        self.inputs = Inputs(torch.Tensor)
        phases.on_inputs = self.inputs.take
        for module, patch in AFTERWARDS.items():
            after_import(module, functools.partial(patch, phases=phases))
        patch_torch(torch, phases)
        custom_allocators(torch, self.reading)
        self._endings.install()
        if hasattr(torch._C, "_cuda_memoryStats"):
            self.counters = Counters(torch, self._reset_peaks)
            self.counters.install(torch)
            torch.cuda._lazy_call(self._on_cuda)
            initialisation(torch, self)

    @contained("CUDA initialised")
    def _on_cuda(self) -> None:
        """Called by torch inside its initialisation, under its lock: start a thread and return.

        Where CUDA was initialised before, called at once.
        """
        self._initialised = None if self.torch.cuda.is_initialized() else wire.now_ns()
        self._end_with_multiprocessing()  # a child may fail before that thread is through
        Aside(self._start_after_cuda, "start after CUDA").start()

    @contained("start after CUDA")
    def _start_after_cuda(self) -> None:
        torch, pause, through = self.torch, threading.Event(), self._through
        try:
            with self._starting:
                for attempt in range(2000):  # the rest of torch's own initialisation: milliseconds
                    if torch.cuda.is_initialized():
                        self._start()
                        break
                    pause.wait(0.001 if attempt < 1000 else 0.05)
        finally:
            through.set()
        self._prepare()

    def _prepare(self) -> None:
        """What looks into failures, loaded ahead of them: when nobody waits for the start any more."""
        if self.failures is not None:
            self.failures.prepare()

    @contained("observer")
    def observe(self) -> bool:
        """Have PyTorch tell of failing allocations, from the first one on. False: it does not tell.

        Once a process, right after CUDA's initialisation, on whatever thread comes first.
        """
        with self._observing:
            if self.failures is None:
                self.failures = Failures(self, self.torch)
                self._observed = self.failures.attach()
        return self._observed

    def wait_until_started(self, seconds: float) -> None:
        """Something has failed before the journal could be opened: wait for it."""
        pause, until = threading.Event(), wire.now_ns() + int(seconds * 1e9)
        while not self._through.is_set() and self.torch.cuda.is_initialized() and wire.now_ns() < until:
            pause.wait(0.005)

    def _wait_for_journal(self) -> Optional[Spans]:
        """A span would begin before the start is through: wait for it, but not long for a slow disk."""
        if not self._through.is_set() and self.torch.cuda.is_initialized():
            now = wire.now_ns()
            self._wait_until = self._wait_until or now + int(LONGEST_WAIT_S * 1e9)
            if now < self._wait_until:
                self._through.wait((self._wait_until - now) / 1e9)
        return self._phases.spans if self._phases is not None else None

    def _start(self) -> None:
        """Open journal and ring, say who this is, start the sampler. Once a process, on a thread of ours."""
        if self.journal is None:
            from .maps import Maps

            self.maps = Maps(self, self.torch)  # before anybody can see that this process is there to ask
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
                self.spans = self._make_spans(self.ring)
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

    def _make_spans(self, ring: Ring) -> Spans:
        counters = self.counters
        if counters is None:
            return Spans(ring, self.reading)
        read: Callable[[int], Levels] = counters.levels
        begin_anew: Callable[[int], Levels] = counters.begin_anew
        if self.strict:
            read, begin_anew = self._in_order(read), self._in_order(begin_anew)
        spans = Spans(ring, self.reading, read, begin_anew, counters.reset_peaks)
        counters.on_user_reset = spans.keep_peaks
        return spans

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
        self.groups.introduce()
        torch = self.torch
        if self.strict:
            self.say(
                "strict protocol", "every phase boundary waits for the device: overlap is not as without"
            )
        facts = identity.torch_facts(torch)
        self.tell("torch", now, *facts)
        if self.counters is None or not torch.cuda.is_initialized():
            return
        for device in identity.devices_of(torch):
            self.devices[device.ordinal] = device
            self.tell(
                "device", now, device.ordinal, device.uuid, device.pci, device.name, device.total_bytes,
                device.identified_by, self._initialised,
            )  # fmt: skip
        _, _, _, allocator, _, caching = facts
        self.reading.start()
        if allocator == "pluggable":
            self.reading.stop("pluggable allocator", "allocator is pluggable: PyTorch counters unavailable")
        elif not caching:
            self.reading.stop(
                "caching disabled",
                "PYTORCH_NO_CUDA_MEMORY_CACHING is set: PyTorch counts nothing, its zeros are not shown",
            )
        if not self.observe() and allocator == "native":
            self.say("no observer", "this PyTorch does not tell of failing allocations as they happen")
        if self.keeps_history:
            self._record_history()

    def _record_history(self) -> None:
        from .autopsy import history
        from .autopsy.absent import Absent

        try:
            history.record(self.torch)
        except Absent as absent:
            self.keeps_history = False
            self.say("no history", str(absent))

    # --- telling ------------------------------------------------------------------------------

    def tell(self, kind: str, *values: Any) -> None:
        """A line for the journal, from any thread; written by the sampler."""
        self._lines.append(wire.encode(kind, *values))

    def flush(self) -> None:
        """Have the sampler write what was told so far; waits for it shortly."""
        if self.sampler is not None:
            self.sampler.hurry(FLUSH_S)

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
        last, left_out, _ = self._marked.get(name, (0, 0, 0))
        if detail is None and now - last < 1_000_000_000:
            self._marked[name] = (last, left_out + 1, now)
            return
        self._marked[name] = (now, 0, now)
        self._tell_mark(now, name, detail, left_out)

    def _tell_mark(self, t_ns: int, name: str, detail: Optional[str], left_out: int) -> None:
        self.tell("mark", t_ns, name, detail or ("%d more since the last" % left_out if left_out else None))

    def _tell_left_out(self) -> None:
        """The last of each that was left out, with the count of the others: at the end the count is whole."""
        for name, (_, left_out, latest) in list(self._marked.items()):
            if left_out:
                self._tell_mark(latest, name, None, left_out - 1)
        self._marked.clear()

    def _in_order(self, read: Callable[[int], Levels]) -> Callable[[int], Levels]:
        """``--protocol strict``: wait for the device's work first; not while a graph is being captured."""
        cuda = self.torch.cuda

        def wait_and_read(ordinal: int) -> Levels:
            if not cuda.is_current_stream_capturing():
                cuda.synchronize(ordinal)
            return read(ordinal)

        return wait_and_read

    # --- the end ------------------------------------------------------------------------------

    def say_goodbye(self) -> None:
        """The sampler's last act."""
        if self.journal is not None:
            self.journal.append("bye", wire.now_ns(), "exit")
            self.journal.flush()

    @contained("exit")
    def on_exit(self) -> None:
        """At the end of the interpreter, after the user's own handlers; waits 0.2 s at most."""
        if self._starting.acquire(timeout=EXIT_WAIT_S):
            self._starting.release()
        if self.sampler is not None:
            self._endings.at_exit()
            if self.ring is not None:
                self.ring.say(ENDING)
            self._tell_left_out()
            self.sampler.stop(0.15)

    def _end_with_multiprocessing(self) -> None:
        """Children of multiprocessing end without atexit; their own finalizers run."""
        util = sys.modules.get("multiprocessing.util")
        if self._finalizes or util is None:
            return
        self._finalizes = True
        if sys.modules["multiprocessing"].parent_process() is not None:
            util.Finalize(None, self._on_exit_of_child, exitpriority=-100)

    def _on_exit_of_child(self) -> None:
        self._endings.at_exit_of_child()
        self.on_exit()

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

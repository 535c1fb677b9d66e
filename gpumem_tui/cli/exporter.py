"""Prometheus through prometheus-client: metrics of runs as text, once or on a port of this machine."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpumem_tui.errors import BadInput, GpumemError, MissingRequirement
from gpumem_tui.journal import rundir
from gpumem_tui.session import Recording
from gpumem_tui.session.life import RunLife
from gpumem_tui.views.export.metrics import METRICS, samples

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from gpumem_tui.analysis.state import RunState

HOST, PORT = "127.0.0.1", 9435
"""Where ``--serve`` listens unless told otherwise: nobody else on the network reads along."""

PATH = "/metrics"
"""Where on it the metrics are; ``/`` says so, and there is nothing else."""


def registry_of(read: "Callable[[], Sequence[RunState]]") -> "CollectorRegistry":
    """A registry that reads its runs at every scrape. Raises :class:`MissingRequirement`."""
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        raise MissingRequirement(
            "Prometheus needs prometheus-client; install it with: pip install 'gpumem-tui[export]'"
        ) from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(read))
    return registry


class LiveRuns:
    """Every run of this user that goes on here, as they come and go."""

    def __init__(self) -> None:
        self._followed: dict[str, Recording] = {}

    def read(self) -> "list[RunState]":
        """Their states of now; a run that has just ended is told once more, as ended."""
        for entry in rundir.list_runs():
            name, facts = entry.run.name, entry.facts
            if facts is None or name in self._followed:
                continue
            if RunLife(facts, entry.run.journal).lives(facts.keeper_pid, facts.keeper_ticks):
                self._followed[name] = Recording(entry.run)
        states = []
        for name, recording in list(self._followed.items()):
            try:
                state = recording.read()
            except GpumemError:  # removed, or damaged: it is not among the live ones any more
                del self._followed[name]
                continue
            states.append(state)
            if not state.facts.live:
                del self._followed[name]
        return states


class _Collector:
    """What prometheus-client asks at every scrape; scrapes may come from several threads."""

    def __init__(self, read: "Callable[[], Sequence[RunState]]") -> None:
        self._read = read
        self._lock = threading.Lock()

    def describe(self) -> "list[Metric]":
        """Nothing is claimed beforehand: what there is depends on the runs."""
        return []

    def collect(self) -> "Iterator[Metric]":
        """All metrics of now; of a recording that cannot be read any more, only that it is not up."""
        from prometheus_client.metrics_core import Metric

        families: dict[str, Metric] = {}

        def add(name: str, value: float, labels: dict[str, str]) -> None:
            kind, meaning = METRICS[name]
            family = families.get(name)
            if family is None:
                title = name.removesuffix("_total") if kind == "counter" else name
                family = families[name] = Metric(title, meaning, kind)
            family.add_sample(name, labels, value)

        try:
            with self._lock:
                states = self._read()
        except GpumemError:
            add("gpumem_run_up", 0, {})
            states = ()
        for state in states:
            facts = state.facts
            cards = "real" if facts.simulated is None else f"SIMULATED {facts.simulated}"
            run = {"run": facts.run, "cards": cards}
            for sample in samples(state):
                add(sample.name, sample.value, run | dict(sample.labels))
        yield from families.values()


def text_of(registry: "CollectorRegistry") -> bytes:
    """The text format, once."""
    from prometheus_client import generate_latest

    return generate_latest(registry)


def address_of(text: str) -> tuple[str, int]:
    """``9435``, ``0.0.0.0:9435``, ``[::1]:9435`` or nothing as (host, port). Raises :class:`BadInput`."""
    host, sign, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()) or not 0 <= int(port) <= 65535 or (sign and not host):
        raise BadInput(
            f"--serve {text!r} is no address; write PORT or ADDRESS:PORT, as in 9435 or 0.0.0.0:9435"
        )
    return host.strip("[]") or HOST, int(port)


def serve(registry: "CollectorRegistry", host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve :data:`PATH` until this process is interrupted. ``ready`` is called with the URL.

    Raises :class:`BadInput` where the address cannot be listened on.
    """
    import signal

    from prometheus_client import make_wsgi_app, start_http_server

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise BadInput(f"cannot listen on {host}:{port}: {error.strerror}") from error
    server.set_app(_at_its_path(make_wsgi_app(registry)))
    shown = f"[{host}]" if ":" in host else host
    ready(f"http://{shown}:{server.server_port}{PATH}")
    ended.wait()
    server.shutdown()
    server.server_close()
    thread.join()


def _at_its_path(metrics: "WSGIApplication") -> "WSGIApplication":
    """Metrics where they belong; prometheus-client alone answers with them on every path."""

    def application(environ: "WSGIEnvironment", respond: "StartResponse") -> "Iterable[bytes]":
        path = environ["PATH_INFO"]
        if path == PATH:
            return metrics(environ, respond)
        status = "200 OK" if path == "/" else "404 Not Found"
        respond(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"gpumem-tui: metrics are at {PATH}\n".encode()]

    return application

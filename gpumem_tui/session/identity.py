"""The identity of a run as views see it, from its run.json."""

from gpumem_tui.analysis.provenance import WARMUP, Identity
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.records.revision import Revision


def identity_of(file: RunFile) -> Identity:
    """What run.json says, older ones included: what they do not say is missing with its reason."""
    simulated = file.simulated
    return Identity(
        version=file.version,
        cwd=file.cwd,
        protocol=file.protocol,
        reset_peaks=file.reset_peaks,
        hertz=file.hertz,
        revision=file.revision or Revision(reason="not recorded"),
        seed=file.seed,
        seed_source=file.seed_source,
        declared=tuple(file.declared.items()),
        warmup=file.warmup or WARMUP,
        environment=tuple(sorted(file.environment.items())),
        kernel_us=None if simulated is None else simulated.kernel_us,
        simulation=() if simulated is None else tuple(sorted(simulated.settings.items())),
    )

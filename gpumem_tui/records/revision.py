"""The state of a working directory's version control, as run.json keeps it. Data only."""

import msgspec


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, and whether the files were still those of it. A missing figure has its reason."""

    commit: str | None = None
    """Full hexadecimal name."""
    branch: str | None = None
    """None on a detached head as well."""
    dirty: bool | None = None
    """Whether tracked files differ from the commit; files that git does not know are not looked at."""
    root: str | None = None
    """Top of the working tree."""
    reason: str | None = None
    """Why ``commit`` or ``dirty`` is None: ``no git repository``, ``git took longer than 2 s``."""

"""Which commit a folder is at, and whether its files differ from it: git's plumbing, asked briefly.

Nothing of the repository is run or written: no hook, no file-system monitor, no
pager, no prompt, no lock. Refuses to wait longer than it was told.
"""

import os
import subprocess
from pathlib import Path

from gpumem_tui.records.revision import Revision

TIMEOUT_S = 2.0
"""For each of two questions; a large tree on a slow disk gives a commit without ``dirty``."""

_QUIET = (
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.pager=cat",
)


def working_folder() -> Path:
    """The folder that this process is in; of one that was removed, what the kernel calls it."""
    try:
        return Path.cwd()
    except OSError:
        try:
            return Path(os.readlink("/proc/self/cwd"))  # noqa: PTH115  a text: there is no such path
        except OSError:
            return Path("?")


def revision_of(folder: Path, timeout_s: float = TIMEOUT_S) -> Revision:
    """The revision of the working tree that holds ``folder``; what is not known has a reason."""
    try:
        told = _git(folder, timeout_s, "rev-parse", "--show-toplevel", "--symbolic-full-name", "HEAD")
        if told.returncode != 0:
            return _without_head(folder, timeout_s, told.stderr)
        root, name = told.stdout.splitlines()[:2]
        commit = _git(folder, timeout_s, "rev-parse", "HEAD").stdout.strip()
    except FileNotFoundError:
        gone = not folder.is_dir()
        return Revision(reason="the working directory was removed" if gone else "git is not installed")
    except OSError as error:
        return Revision(reason=f"git cannot be run: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Revision(reason=f"git took longer than {timeout_s:g} s")
    branch = name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None
    try:
        changed = _git(folder, timeout_s, "status", "--porcelain", "--untracked-files=no", "-z")
    except subprocess.TimeoutExpired:
        reason = f"dirty: git took longer than {timeout_s:g} s"
        return Revision(commit=commit, branch=branch, root=root, reason=reason)
    if changed.returncode != 0:
        return Revision(commit=commit, branch=branch, root=root, reason=f"dirty: {_first(changed.stderr)}")
    return Revision(commit=commit, branch=branch, root=root, dirty=bool(changed.stdout))


def _git(folder: Path, timeout_s: float, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["git", *_QUIET, *words],
        cwd=folder,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def _without_head(folder: Path, timeout_s: float, said: str) -> Revision:
    """No repository, one without a commit, or one that git does not trust."""
    top = _git(folder, timeout_s, "rev-parse", "--show-toplevel")
    if top.returncode == 0:
        return Revision(root=top.stdout.strip(), reason="no commit yet")
    if "not a git repository" in said:
        return Revision(reason="no git repository")
    return Revision(reason=_first(said))


def _first(said: str) -> str:
    return (said.strip().splitlines() or ["git failed"])[0].removeprefix("fatal: ")

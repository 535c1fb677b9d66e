"""One Python under the agent that has imported torch, and forks for each script that a test runs.

Importing torch takes seconds, and what a script does a fraction of one. The agent is
in the process by its environment as ever, and goes on in each child, as after any fork.
"""

import textwrap
from pathlib import Path
from typing import NamedTuple

PARENT = """
import os, sys, torch, torch._dynamo  # what the first step of an optimizer imports
print("ready", flush=True)
for line in sys.stdin:
    folder = line.strip()
    pid = os.fork()
    if not pid:
        for name, descriptor in (("out", 1), ("err", 2)):
            os.dup2(os.open(os.path.join(folder, name), os.O_CREAT | os.O_WRONLY), descriptor)
        break
    print(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    sys.exit()
with open(os.path.join(folder, "script.py")) as file:
    script = file.read()
exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
"""  # and then how every script of a test ends


class Child(NamedTuple):
    """A script that has ended well."""

    run: object
    pid: int
    stdout: str

    def records(self, kind=None):
        """What its journal says."""
        return self.run.records(kind, self.pid)


class Forks:
    """Runs scripts on a card under an agent's run."""

    def __init__(self, card, run, folder: Path, **options) -> None:
        self._run, self._folder, self._count = run, folder, 0
        self._parent = card.start_python(PARENT, env=run.environment(), **options)
        assert self._parent.stdout.readline() == "ready\n", self._parent.stderr.read()

    def run(self, code: str) -> Child:
        """Run a script to its end, which has to be a good one."""
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        (folder / "script.py").write_text(textwrap.dedent(code))
        self._parent.stdin.write(f"{folder}\n")
        self._parent.stdin.flush()
        pid, code = map(int, self._parent.stdout.readline().split())
        assert code == 0, (folder / "err").read_text()
        return Child(self._run, pid, (folder / "out").read_text())

"""The view over a real SSH line: watched, cut, and come back to while the run goes on."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time

import pyte
import pytest
from product import Gpumem, wait_until

pexpect = pytest.importorskip("pexpect")
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
SSH = shutil.which("ssh")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SSHD is None or SSH is None, reason="no OpenSSH server and client on this machine"),
]


@pytest.fixture
def line(tmp_path):
    """Ends a login on this machine through a server of its own; yields the client's command."""
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    (keys / "authorized").write_text((keys / "user.pub").read_text())
    (keys / "authorized").chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "sshd_config"
    config.write_text(
        textwrap.dedent(f"""\
            ListenAddress 127.0.0.1
            Port {port}
            HostKey {keys / "host"}
            AuthorizedKeysFile {keys / "authorized"}
            PidFile none
            PasswordAuthentication no
            KbdInteractiveAuthentication no
            PubkeyAuthentication yes
            PermitRootLogin yes
            StrictModes no
            UsePAM no
            AcceptEnv *
            """)
    )
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # noqa: PTH103
    log = tmp_path / "sshd.log"
    server = subprocess.Popen([SSHD, "-D", "-f", str(config), "-E", str(log)], stdin=subprocess.DEVNULL)
    command = [
        SSH, "-tt", "-p", str(port), "-i", str(keys / "user"), "-o", "IdentitiesOnly=yes",
        "-o", f"UserKnownHostsFile={keys / 'known'}", "-o", "StrictHostKeyChecking=accept-new",
        "-o", "SendEnv=GPUMEM_TUI_HOME LANG TERM COLORTERM", "-o", "LogLevel=ERROR", "-F", "/dev/null",
        f"{getpass.getuser()}@127.0.0.1",
    ]  # fmt: skip
    try:
        wait_until(lambda: server.poll() is not None or listens(port), what="an answer of the server")
        tried = subprocess.run([*command, "true"], capture_output=True, timeout=20, stdin=subprocess.DEVNULL)
        if tried.returncode != 0:
            told = [*log.read_text(errors="replace").splitlines(), repr(tried.stderr[-200:])]
            pytest.skip(f"OpenSSH on this machine lets nobody in: {'; '.join(told[-2:])}")
        yield command
    finally:
        server.kill()
        server.wait()


def listens(port: int) -> bool:
    """Whether somebody answers there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Login:
    """A view on the far end of the line, on a terminal here."""

    def __init__(self, line, words, environment, size=(80, 24)) -> None:
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self.child = pexpect.spawn(
            line[0],
            [*line[1:], " ".join(words)],
            env={**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
            dimensions=(size[1], size[0]),
            use_poll=True,
        )

    def read(self) -> str:
        try:
            self._stream.feed(self.child.read_nonblocking(1 << 16, timeout=0.2))
        except (pexpect.TIMEOUT, pexpect.EOF):
            time.sleep(0.02)
        return "\n".join(self.screen.display)

    def wait_for(self, text, seconds=30.0) -> str:
        until = time.monotonic() + seconds
        while text not in (shown := self.read()):
            assert time.monotonic() < until, f"{text!r} did not appear:\n{shown}"
        return shown

    def cut(self) -> None:
        """The line is gone from one moment to the next: nobody says goodbye."""
        self.child.kill(9)
        self.child.wait()
        self.child.close()


COUNTING = """
import time
for second in range(600):
    print("second", second, flush=True)
    time.sleep(0.2)
"""


def views_of(home) -> list[str]:
    """Command lines of views that are open on this home."""
    found = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if f"GPUMEM_TUI_HOME={home}" in line and " attach" in line]


def test_a_run_outlives_a_cut_ssh_line_and_is_watched_again(line, tmp_path):
    product = Gpumem(tmp_path)
    script = tmp_path / "count.py"
    script.write_text(COUNTING)
    words = [f"env GPUMEM_TUI_HOME={product.home} {sys.executable} -m gpumem_tui"]
    started = [*words, "run", "--anyway", "--name", "counted", "--", sys.executable, str(script)]
    try:
        first = Login(line, started, os.environ)
        first.wait_for("overview")
        first.child.send("6")
        first.wait_for("second 3")
        run = product.latest()
        size_before = run.output_log.stat().st_size
        first.cut()
        wait_until(lambda: run.output_log.stat().st_size > size_before + 50, what="more output")

        second = Login(line, [*words, "attach", "counted"], os.environ)
        second.wait_for("overview")
        second.child.send("6")
        shown = second.wait_for("following")
        assert "second " in shown
        second.child.send("q")
        second.wait_for("detach, the run goes on")
        second.child.send("s")
        second.wait_for("KeyboardInterrupt")
        second.child.send("q")
        second.child.expect(pexpect.EOF, timeout=30)

        wait_until(lambda: product.recording().read().facts.ending is not None, what="the end of the run")
        wait_until(lambda: not views_of(product.home), what="the end of every view")
    finally:
        product.end()

"""A batch run's bytes, exit status and signals are those of the bare command. The run is sacred."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

PYTHON = sys.executable

SCRIPTS = {
    "exit 0": "print('fine')",
    "exit 3": "import sys; print('out'); sys.exit(3)",
    "exit with a text": "import sys; sys.exit('something is wrong')",
    "an uncaught exception": "def f(): raise KeyError('no')\nf()",
    "reading stdin": "import sys; print(sys.stdin.read()[::-1])",
    "100 MB of output": "import sys\nfor _ in range(1600): sys.stdout.write('x' * 65535 + chr(10))",
    "arguments with --": "import sys, argparse\np = argparse.ArgumentParser(); p.add_argument('-m'); "
    "p.add_argument('rest', nargs='*')\nprint(p.parse_args(sys.argv[1:]), sys.argv[1:])",
    "spawned children": "import multiprocessing as mp\ndef f(x): return x * x\n"
    "if __name__ == '__main__':\n    pool = mp.get_context('spawn').Pool(2); print(pool.map(f, range(5))); "
    "pool.close(); pool.join()",
    "killing itself": "import os, signal; print('bye', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "os._exit": "import os; print('now', flush=True); os._exit(17)",
    "its own signal handler": "import os, signal, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit('handled'))\nos.kill(os.getpid(), signal.SIGTERM)",
    "what it sees of its streams": "import os, sys\n"
    "print([os.isatty(i) for i in (0, 1, 2)], sys.flags, sys.path[1:])",
    "closed stdout": "import os; os.close(1); print('x')",
}


def both(gpumem, command, stdin=b"hello"):
    """The bare and the monitored run of a command."""
    bare = subprocess.run(
        command, env=gpumem.environment, cwd=gpumem.folder, input=stdin, capture_output=True, check=False
    )
    return bare, gpumem.run(command, exits=None, stdin=stdin)


@pytest.mark.parametrize("name", SCRIPTS)
def test_output_and_status_are_the_same(gpumem, name):
    script = gpumem.folder / "script.py"
    script.write_text(SCRIPTS[name])

    bare, monitored = both(gpumem, [PYTHON, str(script), "-m", "x", "--", "a", "--", "b"])

    assert monitored.returncode == bare.returncode
    assert monitored.stdout == bare.stdout
    assert monitored.stderr == bare.stderr


def test_a_program_that_is_not_python_is_the_same(gpumem):
    bare, monitored = both(gpumem, ["sh", "-c", "cat; echo err >&2; exit 5"])

    assert (monitored.returncode, monitored.stdout, monitored.stderr) == (5, bare.stdout, b"err\n")


def test_a_script_is_given_to_python_by_itself(gpumem):
    (gpumem.folder / "plain.py").write_text("import sys; print(sys.argv)")

    done = gpumem("run", "--anyway", "--batch", "plain.py", "--batch", "7")

    assert done.stdout == b"['plain.py', '--batch', '7']\n"


def test_a_module_is_given_to_python_by_m(gpumem):
    (gpumem.folder / "package").mkdir()
    (gpumem.folder / "package" / "train.py").write_text("import sys; print(__name__, sys.argv[1:])")

    done = gpumem("run", "--anyway", "--batch", "-m", "package.train", "--name", "x")

    assert done.stdout == b"__main__ ['--name', 'x']\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_from_outside_reaches_the_workload_and_its_death_is_ours(gpumem, number):
    process = gpumem.start("run", "--anyway", "--batch", "--", "sh", "-c", "echo up; exec sleep 60")
    assert process.stdout.readline() == b"up\n"
    os.kill(process.pid, number)

    assert process.wait(10) == -number
    assert gpumem.recording().read().facts.ending == f"killed by {number.name}"


def test_a_signal_to_the_group_reaches_the_workload_once(gpumem):
    code = """
        import signal, time
        count = 0
        def handler(*_):
            global count; count += 1
        signal.signal(signal.SIGINT, handler)
        print("up", flush=True)
        for _ in range(10): time.sleep(0.1)
        print(count)
    """
    script = f"""
        import os, pty, sys, time
        pid, master = pty.fork()
        if pid == 0:
            ours = "-m gpumem_tui run --anyway --batch --".split()
            os.execv(sys.executable, [sys.executable, *ours, sys.executable, "-c", {textwrap.dedent(code)!r}])
        data = b""
        while b"up" not in data: data += os.read(master, 1000)
        os.write(master, b"\\x03")
        while True:
            try: more = os.read(master, 1000)
            except OSError: break
            if not more: break
            data += more
        print(data.split()[-1].decode())
    """
    done = subprocess.run(
        [PYTHON, "-c", textwrap.dedent(script)],
        env=gpumem.environment,
        capture_output=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.replace(b"^C", b"") == b"1\n"


def test_our_parent_s_pipes_close_when_the_workload_ends_though_the_recorder_lingers(gpumem):
    began = time.monotonic()
    gpumem.run(["true"])

    assert time.monotonic() - began < 5

"""Programs that do unusual things to their process: the same output, status and signals under the monitor."""

import importlib.util
import re
import subprocess
import sys
import time

import pexpect
import pytest

PROGRAMS = {
    "atexit in order": "import atexit\n[atexit.register(print, i) for i in range(3)]\nprint('end')",
    "atexit that fails": "import atexit\ndef f(): raise ValueError('late')\natexit.register(f)",
    "a daemon thread left behind": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); print(threading.active_count())",
    "a thread that fails": "import threading\ndef f(): raise KeyError('there')\n"
    "t = threading.Thread(target=f, name='T'); t.start(); t.join()",
    "exec": "import os, sys; sys.stdout.flush()\n"
    "os.execv(sys.executable, [sys.executable, '-c', 'import sys; print(sys.argv); sys.exit(9)', 'x'])",
    "fork": "import os, sys\npid = os.fork()\nif not pid: print('child', flush=True); os._exit(4)\n"
    "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "a pool of forks": "import multiprocessing as mp\ndef f(x): return x * x\n"
    "with mp.get_context('fork').Pool(2) as pool: print(pool.map(f, range(5)))",
    "a child with pipes": "import subprocess, sys\n"
    "print(subprocess.run([sys.executable, '-c', 'print(input())'], input=b'in', capture_output=True))",
    "a handled signal": "import os, signal, time\n"
    "signal.signal(signal.SIGUSR1, lambda n, f: print('caught', n))\nos.kill(os.getpid(), signal.SIGUSR1)\n"
    "print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGCHLD))",
    "an alarm": "import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: print('alarm'))\n"
    "signal.setitimer(signal.ITIMER_REAL, 0.1); time.sleep(1)",
    "a crash with faulthandler": "import faulthandler, os, signal\nfaulthandler.enable()\n"
    "os.kill(os.getpid(), signal.SIGSEGV)",
    "an abort": "import os; print('a', flush=True); os.abort()",
    "a broken pipe": "import sys, os\nos.close(1)\nr, w = os.pipe(); os.close(r)\nos.write(w, b'x')",
    "warnings": "import warnings; warnings.warn('careful'); print(warnings.filters[:1])",
    "hooks of its own": "import sys\nsys.excepthook = lambda t, v, b: print('hook', v)\nraise ValueError(1)",
}
VARYING = re.compile(rb"0x[0-9a-f]+|<frozen[^>]*>")


@pytest.mark.parametrize("name", PROGRAMS)
def test_output_and_status_are_the_same(gpumem, name):
    script = gpumem.folder / "script.py"
    script.write_text(PROGRAMS[name])
    bare = subprocess.run(
        [sys.executable, script], env=gpumem.environment, cwd=gpumem.folder, capture_output=True, check=False
    )

    monitored = gpumem("run", "--anyway", "--batch", script, exits=None)

    # The keeper ends as the workload ended, by the same signal.
    assert monitored.returncode == bare.returncode
    assert VARYING.sub(b"", monitored.stdout) == VARYING.sub(b"", bare.stdout)
    assert VARYING.sub(b"", monitored.stderr) == VARYING.sub(b"", bare.stderr)


@pytest.mark.slow
def test_a_debugger_in_a_terminal_takes_its_commands(gpumem):
    script = gpumem.folder / "script.py"
    script.write_text("x = 41\nbreakpoint()\nprint('answer', x)\n")

    child = pexpect.spawn(
        sys.executable,
        ["-m", "gpumem_tui", "run", "--anyway", "--batch", str(script)],
        env=gpumem.environment | {"TERM": "xterm"},
        cwd=str(gpumem.folder),
        encoding="utf-8",
        use_poll=True,
        timeout=60,
    )
    child.expect_exact("(Pdb)")
    child.sendline("x = x + 1")
    child.expect_exact("(Pdb)")
    child.sendline("continue")
    child.expect("answer 42")
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == 0


TRAINING = """
import faulthandler, os, signal, sys, threading, time
import torch, torch.nn as nn
faulthandler.register(signal.SIGUSR2, all_threads=False)
def workers(): return {t.name for t in threading.enumerate()}
before = workers()
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def step():
    loss = model(torch.ones(8, 64, device="cuda")).sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
for _ in range(3): step()
print(torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved())
for method in ("fork", "spawn"):
    if method == "spawn" and __name__ != "__main__": break
    data = [(torch.full((4,), float(i)), i) for i in range(16)]
    options = dict(num_workers=2, pin_memory=True, multiprocessing_context=method)
    loader = torch.utils.data.DataLoader(data, 4, **options)
    print(method, [int(label.sum()) for x, label in loader])
compiled = torch.compile(model, backend="aot_eager")
compiled(torch.ones(8, 64, device="cuda")).sum().backward()
print(torch._dynamo.utils.counters["graph_break"], torch._dynamo.utils.counters["frames"])
called = torch.compile(model.__call__, backend="aot_eager")  # as Hugging Face's generate does
called(torch.ones(8, 64, device="cuda")).sum().backward()
print(torch._dynamo.utils.counters["graph_break"])
def late(): time.sleep(60)
threading.Thread(target=late, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: (print("term", flush=True), os._exit(21)))
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.slow
@pytest.mark.simcard
def test_a_training_with_loaders_compile_and_handlers_is_the_same(gpumem, make_simcard):
    script = gpumem.folder / "train.py"
    script.write_text(f"def main():\n{''.join('    ' + line + chr(10) for line in TRAINING.splitlines())}\n")
    script.write_text(script.read_text() + "if __name__ == '__main__':\n    main()\n")
    bare = make_simcard("8GiB").run([sys.executable, script], exits=21)

    monitored = gpumem("run", "--simulate", "8GiB", script, exits=21)

    assert monitored.stdout.decode() == bare.stdout
    assert monitored.stderr.decode() == bare.stderr


LIGHTNING = """
import warnings
warnings.filterwarnings("ignore")
import torch, torch.nn as nn, lightning
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__(); self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    def training_step(self, batch, index): return self.net(batch[0]).sum()
    def validation_step(self, batch, index): self.log("loss", self.net(batch[0]).sum())
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 64)), batch_size=8)
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer = lightning.Trainer(max_epochs=2, accelerator="gpu", devices=1, **quiet)
trainer.fit(Net(), data, data)
print(trainer.global_step, {name: float(value) for name, value in trainer.callback_metrics.items()})
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""
TIP = re.compile(".*Tip: .*\n")
"""Lightning draws one by chance."""


@pytest.mark.slow
@pytest.mark.simcard
def test_a_training_with_lightning_is_the_same_and_its_phases_are_seen(gpumem, make_simcard):
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("Lightning is not installed: pip install lightning")
    script = gpumem.folder / "train.py"
    script.write_text(LIGHTNING)
    bare = make_simcard("8GiB").run([sys.executable, script])

    monitored = gpumem("run", "--simulate", "8GiB", script)

    assert monitored.stdout.decode() == bare.stdout
    assert TIP.sub("", monitored.stderr.decode()) == TIP.sub("", bare.stderr)
    rows = gpumem.recording().read().phases
    assert {row.phase for row in rows} >= {"forward", "backward", "optimizer", "eval"}


@pytest.mark.slow
def test_two_runs_at_once_do_not_mix(gpumem):
    programs = [
        gpumem.start(
            *("run", "--anyway", "--batch", "--name", name),
            *("--", "sh", "-c", f"sleep 1; echo {name}; exit {n}"),
        )
        for n, name in enumerate(("one", "two"), start=5)
    ]

    ended = [(p.communicate(timeout=60)[0], p.returncode) for p in programs]

    assert ended == [(b"one\n", 5), (b"two\n", 6)]
    assert [gpumem.report(name)["run"]["exit_code"] for name in ("one", "two")] == [5, 6]


@pytest.mark.slow
def test_a_flood_of_output_passes_at_once_and_is_not_recorded_in_batch(gpumem):
    code = "import os\nblock = b'x' * (1 << 20)\nfor _ in range(256): os.write(1, block)"
    process = gpumem.start("run", "--anyway", "--batch", "--", sys.executable, "-c", code)

    seen = sum(len(block) for block in iter(lambda: process.stdout.read(1 << 20), b""))

    assert (seen, process.wait(30)) == (256 << 20, 0)
    assert sum(f.stat().st_size for f in gpumem.latest().path.rglob("*") if f.is_file()) < 4 << 20


@pytest.mark.slow
def test_a_swarm_of_short_children_is_survived(gpumem):
    began = time.monotonic()
    done = gpumem.run(["sh", "-c", "i=0; while [ $i -lt 300 ]; do (true) & i=$((i+1)); done; wait; echo $i"])

    assert done.stdout == b"300\n"
    assert time.monotonic() - began < 60
    assert gpumem.recording().read().facts.exit_code == 0

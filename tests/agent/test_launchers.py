"""Launchers and wrappers: every rank is seen, under its own number, with the phases of the model inside."""

import importlib.util
import sys
from pathlib import Path

import pytest

from gpumem_tui import records

pytestmark = [pytest.mark.simcard(devices=["8GiB", "8GiB"]), pytest.mark.slow]

SCRIPT = """
import os, sys, time, torch, torch.nn as nn, torch.distributed as dist
class Net(nn.Module):
    def __init__(self, n=64):
        super().__init__(); self.first, self.second = nn.Linear(n, n), nn.Linear(n, n)
    def forward(self, x): return self.second(torch.relu(self.first(x)))

def train(model, optimizer, device, backward=torch.Tensor.backward):
    for _ in range(3):
        backward(model(torch.randn(4, 64, device=device)).sum())
        optimizer.step(); optimizer.zero_grad()

def ddp(rank, size):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "0"))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=size)
    model = nn.parallel.DistributedDataParallel(Net().cuda(), device_ids=[rank])
    train(model, torch.optim.AdamW(model.parameters()), "cuda")
    time.sleep(0.3)
    dist.destroy_process_group()

def fsdp(device, backend):
    from torch.distributed.fsdp import fully_shard
    if device == "cuda": torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend)
    model = Net().to(device)
    mesh = dist.device_mesh.init_device_mesh(device, (2,))
    for module in (model.first, model.second, model): fully_shard(module, mesh=mesh)
    train(model, torch.optim.AdamW(model.parameters()), device)
    time.sleep(0.3)
    local = sum(p.to_local().numel() * 4 for p in model.parameters())
    os.write(1, b"local %d\\n" % local)  # at once: the other rank writes there, too
    dist.destroy_process_group()

def accelerated():
    from accelerate import Accelerator
    accelerator = Accelerator()
    model, optimizer = Net(), None
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    train(model, optimizer, accelerator.device, accelerator.backward)
    time.sleep(0.3)
    dist.destroy_process_group()

if __name__ == "__main__":
    how = sys.argv[1]
    if how == "spawn": torch.multiprocessing.spawn(ddp, (2,), nprocs=2)
    if how == "accelerate": accelerated()
    if how == "fsdp": fsdp("cuda", "nccl")
    if how == "fsdp-cpu": fsdp("cpu", "gloo")
"""

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "--multi_gpu",
              "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
              "--main_process_port"]  # fmt: skip


def launch(simcard, agent_run, folder: Path, how: str, port: int):
    script = folder / "train.py"
    script.write_text(SCRIPT)
    if how == "spawn":
        command = [sys.executable, script, how]
    else:
        command = [*(ACCELERATE if how == "accelerate" else TORCHRUN), str(port), script, how]
    env = {**agent_run.environment(), "MASTER_PORT": str(port), "GPUMEM_TUI_RAISE": ""}
    return simcard.run(command, env=env)


def by_rank(agent_run):
    """Journals of the ranks, by the last number that each has told."""
    pids = {int(name.split("-")[1]) for name in agent_run.writers()}
    return {agent_run.records(records.Rank, pid)[-1].rank: pid for pid in pids}


@pytest.mark.parametrize(("how", "port"), [("spawn", 29611), ("fsdp", 29612), ("accelerate", 29613)])
def test_every_rank_has_its_number_its_phases_and_its_collectives(simcard, agent_run, tmp_path, how, port):
    if how == "accelerate" and importlib.util.find_spec("accelerate") is None:
        pytest.skip("needs accelerate")
    done = launch(simcard, agent_run, tmp_path, how, port)
    ranks = by_rank(agent_run)

    assert sorted(ranks) == [0, 1]
    for pid in ranks.values():
        begins = [b for b in agent_run.records(records.Begin, pid) if b.phase != "load"]
        marks = [(m.name, m.detail) for m in agent_run.records(records.Mark, pid)]
        optimizer = ("optimizer", "AdamW")
        assert [(b.phase, b.name, b.step) for b in begins] == [
            (phase, name, step)
            for step in (1, 2, 3)
            for phase, name in (("forward", "Net"), ("backward", ""), optimizer)
        ]
        assert {end.error for end in agent_run.records(records.End, pid)} == {None}
        assert ("process group", "nccl") in marks or ("process group", "cuda:nccl") in marks
        assert [name for name, _ in marks].count("first collective") == 1
        assert [w.code for w in agent_run.records(records.Word, pid)] == []
    if how == "fsdp":
        shards_count_as_what_is_local(agent_run, ranks.values(), done.stdout)


def shards_count_as_what_is_local(agent_run, pids, said):
    local = [int(line.split()[1]) for line in said.splitlines() if line.startswith("local")]

    assert len(local) == 2
    for pid in pids:
        part = agent_run.records(records.Composition, pid)[-1]
        assert part.parameters_bytes in range(local[0], local[0] + 4 * 512)
        assert part.optimizer_bytes >= 2 * local[0]
        assert part.complete


def test_sharding_on_the_cpu_is_left_alone(simcard, agent_run, tmp_path):
    done = launch(simcard, agent_run, tmp_path, "fsdp-cpu", 29615)

    assert done.stdout.count("local") == 2
    assert {begin.phase for begin in agent_run.records(records.Begin)} <= {"load"}

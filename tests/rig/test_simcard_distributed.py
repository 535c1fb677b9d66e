"""torchrun on simulated cards, with gloo and with NCCL, whose memory is outside the allocator."""

import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.simcard(devices=["24GiB", "24GiB"])]

SCRIPT = """
import os, sys, torch, torch.distributed as dist
backend = sys.argv[1]
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group(backend, device_id=torch.device("cuda", rank) if sys.argv[2:] else None)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda(), device_ids=[rank])
opt = torch.optim.SGD(net.parameters(), 1e-3)
for _ in range(3):
    net(torch.randn(16, 512, device="cuda")).sum().backward()
    opt.step()
dist.barrier()
if backend == "nccl":
    x = torch.tensor([float(rank + 1)], device="cuda")
    dist.all_reduce(x)
    assert x.item() == 3, x.item()
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}], objects
    one = [{"from": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(one, src=0)
    assert one == [{"from": 0}]
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(1 << 21, device="cuda"), group=group)
    from torch.distributed.fsdp import fully_shard
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).cuda()
    fully_shard(model[0]); fully_shard(model)
    model(torch.randn(2, 64, device="cuda")).sum().backward()
    from gpumem_tui.simcard.cards import context_bytes
    free, total = torch.cuda.mem_get_info()
    outside = total - free - torch.cuda.memory_reserved() - context_bytes((8, 6))
    assert outside >= 200 << 20, outside >> 20
dist.destroy_process_group()
sys.stdout.write(f"rank {rank} done\\n")
"""


@pytest.mark.parametrize("backend", ["gloo", "nccl", "nccl eager"])
def test_two_ranks_train_and_give_everything_back(simcard, backend):
    script = simcard.folder / "work.py"
    script.write_text(SCRIPT)
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0")
    rendezvous = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")

    done = simcard.run([sys.executable, *torchrun, *rendezvous, script, *backend.split()])

    assert done.stdout.count("done") == 2, done.stdout
    assert [device.used_bytes for device in simcard.status().devices] == [0, 0]
    assert sorted(path.name for path in simcard.folder.iterdir()) == ["simcard.state", "work.py"]

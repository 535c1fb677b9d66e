"""A workload: kinds of network and of operation, forward and backward. Arguments: which of them.

Says what failed, and ends with the number of failures.
"""

import io
import sys
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: N812  (as everyone calls it)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

dev = "cuda"


def conv_net():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, groups=2),
        nn.GroupNorm(4, 32),
        nn.ConvTranspose2d(32, 8, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    ).to(dev)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        loss = F.cross_entropy(net(torch.randn(4, 3, 32, 32, device=dev)), torch.arange(4).to(dev))
        loss.backward()
        opt.step()
        opt.zero_grad()
    net.eval()(torch.randn(4, 3, 32, 32, device=dev))
    nn.Conv1d(4, 4, 3).to(dev)(torch.randn(2, 4, 20, device=dev)).sum().backward()
    nn.Conv3d(4, 4, 3).to(dev)(torch.randn(2, 4, 8, 8, 8, device=dev)).sum().backward()
    torch.backends.cudnn.benchmark = True
    net = nn.Conv2d(3, 4, 3).to(dev).to(memory_format=torch.channels_last)
    net(torch.randn(2, 3, 9, 9, device=dev)).sum().backward()
    with torch.backends.cudnn.flags(enabled=False):
        nn.Conv2d(3, 4, 3).to(dev)(torch.randn(2, 3, 9, 9, device=dev)).sum().backward()


def transformer():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.n = nn.Embedding(100, 64), nn.LayerNorm(64)
            self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 100)

        def forward(self, i):
            x = self.qkv(self.n(self.e(i))).view(i.shape[0], i.shape[1], 3, 4, 16)
            q, k, v = x.permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(F.dropout(y.transpose(1, 2).flatten(2), 0.1))

    net = Block().to(dev)
    for kind in ({"foreach": True}, {"fused": True}, {"foreach": False, "fused": False}):
        opt, scaler = torch.optim.AdamW(net.parameters(), **kind), torch.amp.GradScaler("cuda")
        for dtype in (torch.float16, torch.bfloat16):
            ids = torch.randint(100, (2, 16), device=dev)
            with torch.autocast("cuda", dtype=dtype):
                logits = checkpoint(net, ids, use_reentrant=False)
                loss = F.cross_entropy(logits.flatten(0, 1), ids.flatten())
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=True)
            loss.item()
    q = torch.randn(2, 4, 16, 64, device=dev, dtype=torch.float16, requires_grad=True)
    for backend in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, q, q).sum().backward()
    nn.TransformerEncoderLayer(64, 4, batch_first=True).to(dev)(
        torch.randn(2, 8, 64, device=dev)
    ).sum().backward()


def data():
    class Set(torch.utils.data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, i):
            return torch.full((1000,), float(i)), i

    for workers in (0, 2):
        for x, _ in torch.utils.data.DataLoader(Set(), 4, pin_memory=True, num_workers=workers):
            assert x.is_pinned()
            y = x.to(dev, non_blocking=True)
            torch.cuda.synchronize()
            assert torch.equal(y.cpu(), x)
    f = io.BytesIO()
    kept = torch.arange(1000.0)
    torch.save({"w": kept.to(dev)}, f)
    f.seek(0)
    assert torch.equal(torch.load(f)["w"].cpu(), kept)
    f.seek(0)
    assert torch.load(f, map_location="cpu")["w"][5] == 5


def operations():
    x = torch.randn(64, 64, device=dev)
    assert torch.tensor(3.5, device=dev).item() == 3.5
    i = torch.randint(9, (64,), device=dev)
    _ = x.nonzero(), x[x > 0], x[i], x.argmax(), x.sort(), x.topk(5), x.unique(), x.cumsum(0), x.max(1)
    _ = torch.multinomial(x.softmax(-1), 2), torch.where(x > 0), x.masked_select(x > 0), torch.bincount(i)
    _ = x.index_put((i,), x[0]), x.scatter_add(0, i[None].expand(64, 64), x)
    _ = x.std().item(), x.isnan().any().item(), x.median(), x.quantile(0.5), x.kthvalue(3), x.tolist(), str(x)
    _ = torch.histc(x), torch.einsum("ij,jk->ik", x, x), torch.bmm(x[None], x[None]), x.half() @ x.half()
    _ = torch.fft.fft(x), x.to(torch.complex64) @ x.to(torch.complex64), torch.cdist(x, x)
    _ = torch.linalg.norm(x), torch.nn.init.kaiming_uniform_(x), torch.nn.init.trunc_normal_(x)
    _ = F.grid_sample(x[None, None], torch.zeros(1, 4, 4, 2, device=dev))
    _ = F.interpolate(x[None, None], scale_factor=2)
    assert torch.isfinite(torch.tensor([1.0], device=dev)).all().item() in (True, False)
    _ = torch.cuda.manual_seed_all(0), torch.cuda.get_rng_state()


def linear_algebra():
    x = torch.randn(8, 8, device=dev)
    _ = (
        torch.linalg.qr(x),
        torch.linalg.inv(x),
        torch.linalg.cholesky(x),
        torch.linalg.svd(x),
        torch.linalg.eigh(x),
    )
    _ = torch.linalg.solve(x, x), torch.linalg.lstsq(x, x), torch.nn.init.orthogonal_(x)


def sparse():
    x = torch.eye(8).to_sparse().to(dev)
    torch.sparse.mm(x, torch.randn(8, 8, device=dev))


def recurrent():
    with torch.backends.cudnn.flags(enabled=False):
        y, _ = nn.LSTM(8, 8).to(dev)(torch.randn(3, 2, 8, device=dev))
        y.sum().backward()
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        net = kind(8, 16, num_layers=2, bidirectional=True, dropout=0.1).to(dev)
        y, _ = net(torch.randn(5, 3, 8, device=dev))
        assert y.shape == (5, 3, 32)
        y.sum().backward()
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 8, device=dev), torch.tensor([5, 3, 2]))
        net(packed)[0].data.sum().backward()
        assert all(p.grad is not None and p.grad.shape == p.shape for p in net.parameters())
        net.eval()(torch.randn(5, 3, 8, device=dev))
    y, _ = nn.LSTM(8, 16, proj_size=4, bias=False).to(dev)(torch.randn(5, 3, 8, device=dev))
    y.sum().backward()


def attention():
    """By PyTorch's own choice, and through cuDNN, which it prefers on newer cards."""
    for dtype in (torch.float16, torch.bfloat16):
        q = torch.randn(2, 8, 128, 64, device=dev, dtype=dtype, requires_grad=True)
        few = torch.randn(2, 2, 128, 64, device=dev, dtype=dtype, requires_grad=True)
        mask = torch.ones(128, 128, device=dev, dtype=dtype)
        for options in ({}, {"is_causal": True}, {"attn_mask": mask}, {"dropout_p": 0.1}):
            F.scaled_dot_product_attention(q, q, q, **options).sum().backward()
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
                F.scaled_dot_product_attention(q, q, q, **options).sum().backward()
            F.scaled_dot_product_attention(q, few, few, enable_gqa=True).sum().backward()


def profiler():
    with torch.profiler.profile(profile_memory=True) as p:
        torch.randn(100, 100, device=dev).sum()
    assert p.key_averages()


def parallel():
    net = nn.DataParallel(nn.Linear(8, 8).to(dev), [0])
    net(torch.randn(4, 8, device=dev)).sum().backward()


def vision():
    try:
        import torchvision
    except ImportError:
        return
    net = torchvision.models.resnet18().to(dev)
    net(torch.randn(2, 3, 64, 64, device=dev)).sum().backward()


def run(part):
    try:
        globals()[part]()
        torch.cuda.synchronize()
    except Exception:
        print(part)
        traceback.print_exc()
        return False
    return True


sys.exit(sum(not run(part) for part in sys.argv[1:]))

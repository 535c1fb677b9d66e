"""Fine-tune a small transformer on two ranks: data parallel, AdamW, an evaluation that keeps too much.

An ordinary PyTorch script. Data are random, weights are random: it is about memory.
Run it with ``torchrun --standalone --nproc-per-node 2 finetune.py``.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as f
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    """Attention and a feed-forward layer, as in GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, width) → the same shape."""
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y: torch.Tensor = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        y = self.down(f.gelu(self.up(self.norm_forward(x))))
        return x + y


class Transformer(nn.Module):
    """A decoder-only language model."""

    def __init__(self, vocabulary: int, tokens: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """(batch, tokens) → logits (batch, tokens, vocabulary)."""
        places = torch.arange(words.shape[1], device=words.device)
        x = self.words(words) + self.places(places)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def batch_of(rows: int, tokens: int, vocabulary: int, device: str) -> torch.Tensor:
    """A batch of random words."""
    return torch.randint(vocabulary, (rows, tokens)).to(device)


def main() -> None:
    """Train, look at the loss now and then, evaluate at the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--eval-batches", type=int, default=200)
    arguments = parser.parse_args()

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    device = f"cuda:{rank}"
    dist.init_process_group("nccl", device_id=torch.device(device))
    torch.manual_seed(0)
    model = Transformer(arguments.vocabulary, arguments.tokens, arguments.width, arguments.layers, heads=16)
    parallel = DistributedDataParallel(model.to(device), device_ids=[rank])
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=3e-4)
    shape = arguments.batch, arguments.tokens, arguments.vocabulary, device

    began = time.time()
    for step in range(1, arguments.steps + 1):
        words = batch_of(*shape)
        logits = parallel(words)
        loss = f.cross_entropy(logits.flatten(0, 1), words.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 0:
            pace = step / (time.time() - began)
            print(f"step {step}/{arguments.steps}  loss {loss.item():.4f}  {pace:.1f} steps/s", flush=True)
        else:
            loss.item()

    if rank == 0:
        print(f"evaluating {arguments.eval_batches} batches", flush=True)
        parallel.eval()
        outputs = []  # every batch's logits are kept on the card: the mistake this demo is about
        with torch.no_grad():
            for _ in range(arguments.eval_batches):
                outputs.append(parallel.module(batch_of(*shape)))
                torch.cuda.synchronize()
        print(f"kept {len(outputs)} outputs", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

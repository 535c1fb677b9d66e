"""Kinds of network and of operation run through on the simulated card, forward and backward."""

import importlib.util
from pathlib import Path

import pytest

from gpumem_tui.journal.simstate import read_peaks

pytestmark = pytest.mark.slow

WORKLOAD = Path(__file__).with_name("workload_models.py")

TRANSFORMERS = """
import os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers as tf
small = dict(vocab_size=128, num_hidden_layers=2)
config = tf.LlamaConfig(hidden_size=64, intermediate_size=128, num_attention_heads=4, **small)
net = tf.AutoModelForCausalLM.from_config(config).cuda()
ids = torch.randint(3, 100, (2, 16), device="cuda")
opt = torch.optim.AdamW(net.parameters())
for _ in range(3):
    net(input_ids=ids, labels=ids).loss.backward()
    opt.step(); opt.zero_grad()
for options in (dict(do_sample=False), dict(do_sample=True, top_k=5), dict(num_beams=2)):
    net.generate(ids, max_new_tokens=8, pad_token_id=0, **options)
"""


def test_networks_and_operations_run_through(simcard):
    parts = "conv_net transformer attention data operations linear_algebra sparse recurrent profiler parallel"

    simcard.python(WORKLOAD, *parts.split())


@pytest.mark.simcard(compute_capability="9.0")
def test_networks_run_through_at_compute_capability_9_0(simcard):
    simcard.python(WORKLOAD, "conv_net", "transformer", "attention", "recurrent")


@pytest.mark.skipif(not importlib.util.find_spec("torchvision"), reason="torchvision is not installed")
def test_torchvision_runs_through(simcard):
    simcard.python(WORKLOAD, "vision")


@pytest.mark.skipif(not importlib.util.find_spec("transformers"), reason="transformers is not installed")
def test_transformers_train_and_generate(simcard):
    simcard.python(TRANSFORMERS, settings={"true_every": 16})


COUNTS = """
import torch
x, n = torch.zeros(100, device="cuda"), torch.zeros(100, dtype=torch.long, device="cuda")
large = torch.zeros(3_000_000, device="cuda")

def leave_numbers():
    for _ in range(64):  # freed at once: their memory is that of what comes next
        torch.tensor([1.0], device="cuda"), torch.tensor([7], device="cuda")

counts = {
    "nonzero": lambda: torch.nonzero(x).shape[0],
    "nonzero of many": lambda: torch.nonzero(large).shape[0],
    "where": lambda: torch.where(x > 0)[0].numel(),
    "mask": lambda: x[x > 0].numel(),
    "unique": lambda: torch.unique(n).numel(),
    "unique in a row": lambda: torch.unique_consecutive(n).numel(),
    "masked_select": lambda: x.masked_select(x > 0).numel(),
}
for name, count in counts.items():
    leave_numbers()
    print(name, count(), sep=": ")
print(torch.tensor([3.5], device="cuda").item())
"""


def test_a_count_is_never_what_lay_in_its_place_before(simcard):
    done = simcard.python(COUNTS)
    *counts, mine = done.stdout.splitlines()

    assert [line for line in counts if not line.endswith(": 0")] == []
    assert len(counts) == simcard.device().invented_reads == 7
    assert mine == "3.5"


LEFT = """
import torch
x, n = torch.zeros(100, 3, device="cuda"), torch.zeros(7, device="cuda")
mine = torch.tensor([3.0, 4.0], device="cuda")

def leave_numbers():
    for _ in range(64):  # freed at once: their memory is that of what comes next
        [torch.tensor([number], device="cuda") for number in (1.0, 7, True)]

read = {
    "sum": lambda: x.sum().item(),
    "max": lambda: (n + 1).max().item(),
    "argmax": lambda: x.argmax().item(),
    "max of rows": lambda: x.max(1)[1][0].item(),
    "mean in double": lambda: x.double().mean().item(),
    "any": lambda: x.isnan().any().item(),
    "elements": lambda: (x[0, 0] * 2 + 1).item(),
    "numbers at once": lambda: sum((n + 1).tolist()),
    "in its place": lambda: mine.add_(1).sum().item(),
    "in the place of a copy": lambda: sum(mine.tolist()),
}
for name, number in read.items():
    leave_numbers()
    print(name, number(), sep=": ")
"""


def test_a_result_is_never_what_lay_in_its_place_before(simcard):
    lines = simcard.python(LEFT).stdout.splitlines()

    assert [line for line in lines if line.rpartition(": ")[2] not in ("0", "0.0", "False")] == []
    assert len(lines) == simcard.device().invented_reads == 10


def test_sizes_that_a_copy_has_brought_are_added_up_and_the_longest_is_found(simcard):
    simcard.python("""
        import torch
        for n in (1, 2, 7, 32):
            lengths = torch.arange(5, 5 + n, device="cpu").cuda()
            assert lengths.sum().item() == sum(range(5, 5 + n))
            assert (lengths.min().item(), lengths.max().item()) == (5, 4 + n)
        pairs = torch.tensor([[3, 9], [5, 1]], device="cuda")
        assert pairs.sum().item() == 18
        assert (pairs[0] + 2).tolist() == [5, 11] and (pairs[0] - pairs[1]).tolist() == [-2, 8]
        assert (3 + pairs[1][1]).item() == 4 and sum(pairs[0]).item() == 12
        assert torch.cat([pairs[0], pairs[1][:1]]).tolist() == [3, 9, 5]
        assert torch.stack([pairs[0][1], pairs[1][0]]).sum().item() == 14
        assert torch.cat([pairs[0][:1] * 2, pairs[1][1:]]).tolist() == [0, 1]  # no kernel multiplied it
        assert pairs[:, 0].sum().item() == 0                     # not one after the other: not computed
    """)

    assert simcard.device().invented_reads == 2


def test_checks_of_whether_all_is_well_pass(simcard):
    simcard.python("""
        import torch
        x, repeats = torch.zeros(3, 4, device="cuda"), torch.tensor([1, 2, 3], device="cuda")
        torch.distributions.Normal(x, x + 1)                     # is every scale positive?
        torch.repeat_interleave(x, repeats, dim=0)               # is no repeat negative?
        torch.testing.assert_close(x, x)
        assert torch.equal(x, x) and torch.isfinite(x).all() and not torch.isnan(x).any()
        assert not (x == x).any() and not (x == 0).sum()         # otherwise it is as ever
    """)


def test_true_every_ends_loops_that_wait_and_trips_guards(simcard):
    """Why the setting is no default: it cannot tell the two kinds of question apart."""
    code = """
        import torch
        loss = torch.ones(1, device="cuda")
        guard = sum(bool(loss.isnan()) for _ in range(32))
        loop = 0
        while not (loss == 1) and loop < 32:
            loop += 1
        print(guard, loop)
    """

    assert simcard.python(code).stdout.split() == ["0", "32"]
    assert simcard.python(code, settings={"true_every": 16}).stdout.split() == ["2", "15"]


def test_numbers_that_no_kernel_computed_are_counted(simcard):
    simcard.python("""
        import torch
        x = torch.tensor([3.5], device="cuda")
        assert x.item() == 3.5              # put there by a copy: a true number
    """)
    before = read_peaks(simcard.state)[0]

    simcard.python("""
        import torch
        x = torch.ones(8, device="cuda")
        assert x[x > 0].shape == (0,)       # a mask of zeros
        assert x.sum().item() == 0
    """)

    after = read_peaks(simcard.state)[0]
    assert (before.invented_reads, before.invented_counts) == (0, 0)
    assert (after.invented_reads, after.invented_counts) == (2, 1)

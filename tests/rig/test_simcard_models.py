"""Kinds of network and of operation run through on the simulated card, forward and backward."""

import importlib.util
from pathlib import Path

import pytest

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
    before = simcard.device().invented_reads

    simcard.python("""
        import torch
        x = torch.ones(8, device="cuda")
        assert x[x > 0].shape == (0,)       # a mask of zeros
        assert x.sum().item() == 0
    """)

    assert before == 0
    assert simcard.device().invented_reads >= 2

"""Training loops of others: DeepSpeed's engine (and a stand-in with its interface), Lightning, Trainer."""

import importlib.util
import os

import pytest

from gpumem_tui import records

pytestmark = [pytest.mark.simcard, pytest.mark.slow]


def needs(package):
    """Skip where a package is not there; it is not imported, which takes seconds."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")


ENGINE = '''
import torch
class Inner(torch.optim.AdamW):
    """What DeepSpeed calls for each shard."""
class DeepSpeedEngine(torch.nn.Module):
    """As much of DeepSpeed's engine as the monitor touches."""
    def __init__(self, module, every, takes_gradients):
        super().__init__(); self.module, self.every, self.micro = module, every, 0
        self.takes_gradients = takes_gradients
        self.shards = [Inner([p]) for p in module.parameters()]
    def forward(self, *inputs, **kwargs): return self.module(*inputs, **kwargs)
    def backward(self, loss):
        loss.backward()
        for p in self.module.parameters(): p.grad = None if self.takes_gradients else p.grad
    def is_gradient_accumulation_boundary(self): return (self.micro + 1) % self.every == 0
    def step(self, lr_kwargs=None):
        if self.is_gradient_accumulation_boundary():
            for p in self.module.parameters():
                if p.grad is None: p.grad = torch.zeros_like(p)
            for shard in self.shards: shard.step(); shard.zero_grad()
        self.micro += 1
'''


@pytest.mark.parametrize("takes_gradients", [False, True], ids=["gradients stay", "sharded gradients"])
def test_an_engine_s_step_is_one_optimizer_phase_at_the_last_micro_batch(
    simcard, agent_run, tmp_path, takes_gradients
):
    package = tmp_path / "deepspeed" / "runtime"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("from .runtime.engine import DeepSpeedEngine\n")
    (package / "__init__.py").write_text("")
    (package / "engine.py").write_text(ENGINE)
    simcard.python(
        """
        import sys, time, torch, torch.nn as nn
        sys.path.insert(0, sys.argv[1])
        from deepspeed import DeepSpeedEngine
        class Net(nn.Module):
            def __init__(self): super().__init__(); self.layer = nn.Linear(64, 64)
            def forward(self, x): return self.layer(x)
        engine = DeepSpeedEngine(Net().cuda(), 2, sys.argv[2] == "True")
        for _ in range(4): engine.backward(engine(torch.randn(4, 64, device="cuda")).sum()); engine.step()
        time.sleep(0.1)
        """,
        str(tmp_path),
        str(takes_gradients),
        env=agent_run.environment(),
    )
    spans = [(b.phase, b.name, b.step) for b in agent_run.records(records.Begin) if b.phase != "load"]
    parts = agent_run.records(records.Composition)[-1]

    assert spans == [
        span
        for step in (1, 2)
        for span in (
            *[("forward", "Net", step), ("backward", "", step)] * 2,
            ("optimizer", "DeepSpeedEngine", step),
        )
    ]
    assert {end.error for end in agent_run.records(records.End)} == {None}
    assert parts.optimizer_bytes >= 2 * parts.parameters_bytes


def test_the_real_engine_with_sharded_parameters_is_told_alike(simcard, agent_run):
    needs("deepspeed")
    simcard.python(
        """
        import os
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29591")
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
        import torch, torch.nn as nn, deepspeed
        class Net(nn.Module):
            def __init__(self): super().__init__(); self.layer = nn.Linear(64, 64)
            def forward(self, x): return self.layer(x)
        adam = {"type": "AdamW", "params": {"torch_adam": True, "lr": 1e-3}}
        config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "optimizer": adam,
                  "zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
        engine, *_ = deepspeed.initialize(model=Net(), config=config)
        batch = lambda: torch.randn(4, 64, device="cuda", dtype=torch.bfloat16)
        for _ in range(4): engine.backward(engine(batch()).sum()); engine.step()
        """,
        env={**agent_run.environment(os.environ), "GPUMEM_TUI_RAISE": ""},
    )
    spans = [(b.phase, b.name, b.step) for b in agent_run.records(records.Begin) if b.phase != "load"]

    assert [span for span in spans if span[0] != "backward"] == [
        span
        for step in (1, 2)
        for span in (*[("forward", "Net", step)] * 2, ("optimizer", "DeepSpeedEngine", step))
    ]


def test_lightning_s_loop_has_its_phases(simcard, agent_run, tmp_path):
    needs("lightning")
    simcard.python(
        """
        import logging, sys, torch, torch.nn as nn, lightning
        from torch.utils.data import DataLoader
        class Net(lightning.LightningModule):
            def __init__(self): super().__init__(); self.layer = nn.Linear(64, 64)
            def forward(self, x): return self.layer(x)
            def training_step(self, batch, _): return self(batch).sum()
            def validation_step(self, batch, _): self(batch)
            def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
        data = DataLoader(torch.randn(16, 64), batch_size=4)
        quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False,
                     enable_model_summary=False, default_root_dir=sys.argv[1])
        trainer = lightning.Trainer(max_epochs=2, accelerator="gpu", devices=1, **quiet)
        trainer.fit(Net(), data, data)
        """,
        str(tmp_path),
        env={**agent_run.environment(os.environ), "GPUMEM_TUI_RAISE": ""},
    )
    begins = [b for b in agent_run.records(records.Begin) if b.phase != "load"]
    by_span = {b.span: b for b in begins}
    forwards = [b for b in begins if b.phase == "forward"]
    last = begins[-1]

    assert [b.step for b in forwards] == list(range(1, 9))
    assert {by_span[b.parent].name for b in forwards} == {"AdamW + closure"}
    assert (last.phase, last.name, last.step) == ("eval", "Net", 8)
    assert {end.error for end in agent_run.records(records.End)} == {None}


def test_the_trainer_s_loop_is_told_with_its_evaluations_and_checkpoints(simcard, agent_run, tmp_path):
    needs("transformers")
    needs("accelerate")
    simcard.python(
        """
        import sys, torch
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
        row = torch.arange(8)
        data = [{"input_ids": row, "labels": row}] * 8
        sizes = dict(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=2)
        model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))
        arguments = TrainingArguments(
            sys.argv[1], per_device_train_batch_size=2, gradient_accumulation_steps=2, num_train_epochs=1,
            report_to=[], disable_tqdm=True, eval_strategy="epoch", save_strategy="epoch", logging_steps=9)
        Trainer(model, arguments, train_dataset=data, eval_dataset=data).train()
        """,
        str(tmp_path),
        env={**agent_run.environment(), "GPUMEM_TUI_RAISE": ""},
    )
    spans = [(b.phase, b.step) for b in agent_run.records(records.Begin) if b.phase != "load"]

    assert spans[:10] == [
        span
        for step in (1, 2)
        for span in (*[("forward", step), ("backward", step)] * 2, ("optimizer", step))
    ]
    assert spans[10] == ("eval", 2)
    assert {phase for phase, _ in spans[10:]} == {"eval", "save"}
    assert {end.error for end in agent_run.records(records.End)} == {None}

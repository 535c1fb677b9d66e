"""Other people's training programs, bare and monitored: the same output, status and memory counters."""

import re
import sys

import pytest

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

TRAINER = """
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Words(Dataset):
    def __len__(self): return 24
    def __getitem__(self, i): return {"input_ids": torch.full((32,), i), "labels": torch.full((32,), i)}

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=2))
arguments = TrainingArguments(
    "out", max_steps=6, per_device_train_batch_size=4, eval_strategy="steps", eval_steps=3, logging_steps=2,
    save_strategy="no", report_to=[], skip_memory_metrics=False, disable_tqdm=True)
trainer = Trainer(model, arguments, train_dataset=Words(), eval_dataset=Words())
result = trainer.train()
print({k: v for k, v in result.metrics.items() if "mem_gpu" in k})
print([{k: v for k, v in line.items() if "loss" in k or "gpu" in k} for line in trainer.state.log_history])
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""

TORCHVISION = """
import torch, torchvision
torch.manual_seed(0)
model = torchvision.models.resnet18(num_classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = torchvision.datasets.FakeData(24, (3, 64, 64), 10, torchvision.transforms.ToTensor())
loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2)
for epoch in range(2):
    model.train()
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(epoch, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())
    torch.cuda.reset_peak_memory_stats()
    model.eval()
    with torch.no_grad():
        for images, labels in loader: model(images.cuda())
    print("eval", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""

VARYING = re.compile(rb"'\w*(runtime|per_second|mem_cpu)\w*': '?[\d.e+-]+'?")
"""Times and host memory, which two bare runs do not share either."""


@pytest.mark.parametrize(
    ("script", "phases"),
    [
        (TRAINER, {"load", "forward", "backward", "optimizer", "eval"}),
        (TORCHVISION, {"load", "forward", "backward", "optimizer", "eval"}),
    ],
    ids=["Trainer of transformers", "torchvision"],
)
def test_bare_and_monitored_are_the_same(gpumem, make_simcard, script, phases):
    path = gpumem.folder / "script.py"
    path.write_text(script)
    card = make_simcard("8GiB", true_every=16)
    bare = card.run([sys.executable, path], env={"PWD": str(gpumem.folder)}, exits=None)

    monitored = gpumem(
        "run", "--simulate", "8GiB", "--sim-set", "true_every=16", "--", sys.executable, path, exits=None
    )

    assert (monitored.returncode, bare.returncode) == (0, 0), bare.stderr
    assert VARYING.sub(b"", monitored.stdout) == VARYING.sub(b"", bare.stdout.encode())
    assert {row.phase for row in gpumem.recording().read().phases} == phases

"""A training step of a timm model: MODEL BATCH. The setup of tests/foresight/README.md.

It does what timm's own train.py does by default where that decides about memory: SGD with
Nesterov momentum and weight decay on matrices only, smoothed labels, ``cudnn.benchmark``,
gradients dropped after the step, and the next batch copied and normalised on a stream of its
own while this one is trained on.
"""

import sys
from collections.abc import Iterator

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2

STEPS = 4

model, batch = sys.argv[1], int(sys.argv[2])
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.benchmark = True
net = timm.create_model(model, pretrained=False, num_classes=1000).cuda().train()
size = net.default_cfg["input_size"]
optimizer = create_optimizer_v2(net, opt="sgd", lr=0.1, momentum=0.9, weight_decay=2e-5)
loss_of = LabelSmoothingCrossEntropy(0.1).cuda()


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    stream = torch.cuda.Stream()
    level = torch.full((1, 3, 1, 1), 127.5, device="cuda")
    ready = None
    for _ in range(STEPS + 1):
        with torch.cuda.stream(stream):
            images = torch.empty(batch, *size, dtype=torch.uint8).cuda(non_blocking=True)
            targets = torch.zeros(batch, dtype=torch.long).cuda(non_blocking=True)
            images = images.float().sub_(level).div_(level)
        if ready is not None:
            yield ready
        torch.cuda.current_stream().wait_stream(stream)
        ready = images, targets


for images, targets in batches():
    loss = loss_of(net(images), targets)
    loss.backward()
    optimizer.step()
    loss.item()
    optimizer.zero_grad()

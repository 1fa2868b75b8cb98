"""A small network of timm, compiled, that learns from a larger one; with Mixup, a moving average and channels last."""

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3

student = timm.create_model("resnet10t", num_classes=10).cuda().to(memory_format=torch.channels_last)
teacher = timm.create_model("resnet18", num_classes=10).cuda().eval().to(memory_format=torch.channels_last)
average = ModelEmaV3(student, decay=0.999)
compiled, guide = torch.compile(student), torch.compile(teacher)
mix, hard = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=10), SoftTargetCrossEntropy()
optimizer = create_optimizer_v2(student, "lamb", lr=1e-3)
for _ in range(4):
    x, y = torch.randn(8, 3, 64, 64, device="cuda"), torch.randint(0, 10, (8,), device="cuda")
    x, y = mix(x, y)
    with torch.autocast("cuda", torch.bfloat16):
        with torch.no_grad():
            soft = guide(x).softmax(-1)
        made = compiled(x)
        loss = hard(made, y) + torch.nn.functional.kl_div(made.log_softmax(-1), soft, reduction="batchmean")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update(student)

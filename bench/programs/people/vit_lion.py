"""ViT-L from torchvision with cudnn.benchmark, Lion written by hand, label smoothing and exponential averages on the CPU."""

import torch
import torch.nn as nn
import torchvision

torch.backends.cudnn.benchmark = True


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in filter(lambda p: p.grad is not None, group["params"]):
                p.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                m, (b1, b2) = state["exp_avg"], group["betas"]
                update = m.clone().mul_(b1).add(p.grad, alpha=1 - b1).sign_()
                p.add_(update, alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


net = torchvision.models.vit_l_16(weights=None, num_classes=1000).cuda()
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = Lion(net.parameters())
ema = {k: v.detach().cpu().clone() for k, v in net.state_dict().items()}
for step in range(16):
    x, y = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(1000, (32,), device="cuda")
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 8 == 7:
        for k, v in net.state_dict().items():
            ema[k].lerp_(v.cpu(), 0.01) if v.is_floating_point() else ema[k].copy_(v)
        print(step, loss.item())

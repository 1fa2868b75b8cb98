"""Training scripts with a memory mistake, and scripts that only look like one. Usage: variants.py NAME

EXPECTED names the finding that each has to yield; None where none of the `leak/` and `growth/` codes may come.
They were written after the rules, and no rule was tuned on them before it was first measured.
"""

import collections
import copy
import sys

EXPECTED = {
    "sum-of-losses": {"leak/graph-retained", "leak/eval-without-no-grad"},
    "outputs-in-list": {"leak/results-kept", "leak/graph-retained"},
    "eval-with-graph": {"leak/eval-without-no-grad"},
    "eval-preds-on-gpu": {"leak/results-kept"},
    "replay-buffer": {"growth/per-step"},
    "cat-in-loop": {"growth/per-step"},
    "hook-keeps-features": {"leak/graph-retained", "leak/results-kept"},
    "create-graph": {"leak/graph-retained", "growth/per-step"},
    "state-not-detached": {"leak/graph-retained"},
    "retain-every-second": {"leak/graph-retained"},
    "ring-of-outputs": None,
    "ema-accumulation": None,
    "masks-by-length": None,
    "gan": None,
    "unfreezing": None,
    "eval-on-cpu": None,
    "bptt": None,
    "inference-loop": None,
    "curriculum": None,
    "losses-as-numbers": None,
}


def main(name):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.manual_seed(0)
    width = 1024

    def net(layers=6):
        return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())]).cuda()

    def batch(n=512):
        return torch.randn(n, width, device="cuda")

    model = net()
    opt = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(x, **kw):
        out = model(x)
        loss = F.mse_loss(out, x)
        opt.zero_grad()
        loss.backward(**kw)
        opt.step()
        return out, loss

    if name == "sum-of-losses":
        total = 0
        for _ in range(10):
            total = total + model(batch()).pow(2).mean()
    elif name == "outputs-in-list":
        outs = []
        for _ in range(12):
            out, _ = step(batch())
            outs.append(out)
    elif name in ("eval-with-graph", "eval-preds-on-gpu", "eval-on-cpu"):
        for _ in range(4):
            step(batch())
        model.eval()
        preds = []
        with torch.set_grad_enabled(name == "eval-with-graph"):
            for _ in range(10):
                out = model(batch())
                preds.append(out.detach().cpu() if name == "eval-on-cpu" else out)
    elif name == "replay-buffer":
        buffer = []
        for _ in range(12):
            x = batch()
            buffer.append(x * 2)
            step(x)
    elif name == "cat-in-loop":
        buffer = batch(64)
        for _ in range(30):
            step(batch(64))
            buffer = torch.cat([buffer, batch(64)])
    elif name == "hook-keeps-features":
        feats = []
        model[3].register_forward_hook(lambda m, i, o: feats.append(o))
        for _ in range(12):
            step(batch())
    elif name == "create-graph":
        for _ in range(10):
            step(batch(), create_graph=True)
            for p in model.parameters():
                p.grad_copy = p.grad
            keep = globals().setdefault("KEEP", [])
            keep.append([p.grad for p in model.parameters()])
    elif name == "state-not-detached":
        cell = nn.GRUCell(width, width).cuda()
        o2 = torch.optim.SGD(cell.parameters(), 1e-9)
        h = torch.zeros(256, width, device="cuda")
        for _ in range(10):
            h = cell(batch(256), h)
            loss = h.mean()
            o2.zero_grad()
            loss.backward(retain_graph=True)
            for p in cell.parameters():
                p.data.add_(p.grad, alpha=-1e-9)
    elif name == "retain-every-second":
        kept = []
        for i in range(12):
            _, loss = step(batch(), retain_graph=i % 2 == 0)
            kept.append(loss)
    elif name == "ring-of-outputs":
        ring = collections.deque(maxlen=4)
        for _ in range(16):
            out, _ = step(batch())
            ring.append(out.detach())
    elif name == "ema-accumulation":
        ema = copy.deepcopy(model)
        for _ in range(6):
            for _ in range(3):
                (F.mse_loss(model(x := batch()), x) / 3).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            with torch.no_grad():
                for e, p in zip(ema.parameters(), model.parameters()):
                    e.lerp_(p, 0.01)
    elif name == "masks-by-length":
        masks = {}
        for i in range(24):
            n = [256, 512, 768, 1024][min(i % 5, 3)]
            if n not in masks:
                masks[n] = torch.ones(n, n, device="cuda")
            step(batch(n))
    elif name == "gan":
        other = net(4)
        o2 = torch.optim.Adam(other.parameters())
        for _ in range(8):
            real, noise = batch(), batch()
            o2.zero_grad()
            fake = model(noise)
            (other(real).mean() - other(fake.detach()).mean()).backward()
            o2.step()
            opt.zero_grad()
            other(fake).mean().backward()
            opt.step()
    elif name == "unfreezing":
        for p in model.parameters():
            p.requires_grad_(False)
        for i in range(12):
            if i % 2 == 0:
                for p in model[10 - i].parameters():
                    p.requires_grad_(True)
            step(batch())
    elif name == "bptt":
        cell = nn.GRUCell(width, width).cuda()
        o2 = torch.optim.Adam(cell.parameters())
        for _ in range(6):
            h, total = torch.zeros(128, width, device="cuda"), 0
            for _ in range(10):
                h = cell(batch(128), h)
                total = total + h.mean()
            o2.zero_grad()
            total.backward()
            o2.step()
    elif name == "inference-loop":
        with torch.inference_mode():
            for _ in range(20):
                y = model(batch())
                y = y.softmax(-1)
    elif name == "curriculum":
        for i in range(12):
            step(batch(128 * (i + 1)))
    elif name == "losses-as-numbers":
        losses = []
        for _ in range(12):
            _, loss = step(batch())
            losses.append(loss.item())
    else:
        sys.exit(f"no such variant: {name}")


if __name__ == "__main__":
    main(sys.argv[1])

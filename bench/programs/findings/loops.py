"""More training loops, with a mistake or with what only looks like one. Usage: loops.py NAME

EXPECTED was written before anything was measured; None where none of the `leak/` and `growth/` codes may come.
Sizes are small on purpose: a leak of some KiB a step ends a long run as surely as a large one.
"""

import collections
import sys

LEAK = {"leak/graph-retained", "leak/results-kept", "leak/eval-without-no-grad", "growth/per-step"}
EXPECTED = {
    "metric-tensors-kept": LEAK,
    "small-leak-many-steps": LEAK,
    "running-average-with-graph": LEAK,
    "closure-keeps-batch": LEAK,
    "exceptions-hold-frames": LEAK,
    "validation-without-no-grad-list": LEAK,
    "cache-without-bound": LEAK,
    "embeddings-bank-on-device": LEAK,
    "hook-appends-gradients": LEAK,
    "retain-graph-loss-history": LEAK,
    "trainer-like-log-history": LEAK,
    "kv-cache-generation": {"growth/kv-cache", "growth/per-step"},
    "trainer-like-clean": None,
    "replay-ring-preallocated": None,
    "replay-deque-bounded-small": None,
    "cache-with-bound": None,
    "prefetch-two-batches": None,
    "lazy-optimizer-late": None,
    "warmup-lengths": None,
    "dynamic-lengths-random": None,
    "metrics-detached-to-cpu": None,
    "retain-graph-twice-no-keep": None,
    "validation-every-few-steps-clean": None,
    "checkpoint-state-on-cpu": None,
    "two-optimizers-alternate": None,
    "accumulate-sum-of-losses-freed": None,
}


def main(name):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.manual_seed(0)
    width = 512
    model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(width, width), nn.GELU())], nn.Linear(width, 16)).cuda()
    opt = torch.optim.AdamW(model.parameters(), 1e-3)

    def loader(n=16, size=256):
        for _ in range(n):
            yield torch.randn(size, width, device="cuda"), torch.randint(0, 16, (size,), device="cuda")

    def step(x, y, keep_graph=False):
        out = model(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward(retain_graph=keep_graph)
        opt.step()
        return out, loss

    if name == "metric-tensors-kept":
        accuracy = []
        for x, y in loader(40):
            out, _ = step(x, y)
            accuracy.append((out.argmax(1) == y).float())
    elif name == "small-leak-many-steps":
        history = {"norm": []}
        for x, y in loader(120, 32):
            step(x, y)
            history["norm"].append(torch.cat([p.grad.flatten()[:8192] for p in model.parameters()]))
    elif name == "running-average-with-graph":
        average = torch.zeros((), device="cuda")
        for x, y in loader(30):
            loss = F.cross_entropy(model(x), y)
            average = 0.9 * average + 0.1 * loss
            opt.zero_grad()
            loss.backward(retain_graph=True)
            opt.step()
    elif name == "closure-keeps-batch":
        callbacks = []
        for x, y in loader(30):
            step(x, y)
            callbacks.append(lambda x=x: x.mean())
    elif name == "exceptions-hold-frames":
        errors = []

        def unlucky(x, y):
            out = model(x)
            hidden = out.softmax(-1)
            if x.shape[0]:
                raise ValueError("a bad batch")
            return hidden

        for x, y in loader(20):
            step(x, y)
            try:
                unlucky(x, y)
            except ValueError as error:
                errors.append(error)
    elif name == "validation-without-no-grad-list":
        for x, y in loader(5):
            step(x, y)
        model.eval()
        losses = []
        for x, y in loader(12):
            losses.append(F.cross_entropy(model(x), y))
    elif name == "cache-without-bound":
        cache = {}
        for i, (x, y) in enumerate(loader(40)):
            cache[i] = torch.cdist(x[:64], x[:64])
            step(x, y)
    elif name == "embeddings-bank-on-device":
        bank = []
        for x, y in loader(24):
            with torch.no_grad():
                bank.append(model[:4](x))
            step(x, y)
    elif name == "hook-appends-gradients":
        seen = []
        model[0].weight.register_hook(lambda g: seen.append(g.clone()))
        for x, y in loader(16):
            step(x, y)
    elif name == "retain-graph-loss-history":
        losses = []
        for x, y in loader(16):
            losses.append(step(x, y, keep_graph=True)[1])
    elif name == "trainer-like-log-history":
        class Trainer:
            def __init__(self):
                self.logs = []

            def training_step(self, x, y):
                out, loss = step(x, y)
                return {"loss": loss, "out": out}

            def train(self):
                for x, y in loader(24):
                    self.logs.append(self.training_step(x, y))

        Trainer().train()
    elif name == "kv-cache-generation":
        heads, cache_k, cache_v = 8, None, None
        qkv = nn.Linear(width, 3 * width).cuda()
        with torch.no_grad():
            x = torch.randn(64, 1, width, device="cuda")
            for _ in range(60):
                q, k, v = (t.view(64, -1, heads, 64).transpose(1, 2) for t in qkv(x).chunk(3, -1))
                cache_k = k if cache_k is None else torch.cat([cache_k, k], 2)
                cache_v = v if cache_v is None else torch.cat([cache_v, v], 2)
                x = F.scaled_dot_product_attention(q, cache_k, cache_v).transpose(1, 2).reshape(64, 1, width)
    elif name == "trainer-like-clean":
        total = torch.zeros((), device="cuda")
        for n, (x, y) in enumerate(loader(40)):
            loss = F.cross_entropy(model(x), y) / 4
            loss.backward()
            total += loss.detach()
            if n % 4 == 3:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
            if n % 10 == 9:
                total.item()
                total -= total
    elif name == "replay-ring-preallocated":
        ring, at = torch.empty(2048, width, device="cuda"), 0
        for x, y in loader(24):
            ring[at:at + 256].copy_(x)
            at = (at + 256) % 2048
            step(x, y)
    elif name == "replay-deque-bounded-small":
        buffer = collections.deque(maxlen=6)
        for x, y in loader(30):
            buffer.append(x * 2)
            step(x, y)
    elif name == "cache-with-bound":
        cache = {}
        for i, (x, y) in enumerate(loader(40)):
            cache[i % 5] = torch.cdist(x[:64], x[:64])
            step(x, y)
    elif name == "prefetch-two-batches":
        it, queue = loader(24), collections.deque()
        for _ in range(3):
            queue.append(next(it))
        while queue:
            x, y = queue.popleft()
            step(x, y)
            following = next(it, None)
            if following is not None:
                queue.append(following)
    elif name == "lazy-optimizer-late":
        head = nn.Linear(width, 16).cuda()
        late = torch.optim.AdamW(head.parameters())
        for n, (x, y) in enumerate(loader(16)):
            step(x, y)
            if 6 < n:
                late.zero_grad()
                F.cross_entropy(head(x), y).backward()
                late.step()
    elif name == "warmup-lengths":
        for n in range(20):
            for x, y in loader(1, 64 * min(n + 1, 8)):
                step(x, y)
    elif name == "dynamic-lengths-random":
        for n in (300, 120, 410, 222, 510, 90, 333, 480, 260, 505, 150, 499, 45, 387, 508, 230):
            for x, y in loader(1, n):
                step(x, y)
    elif name == "metrics-detached-to-cpu":
        outputs = []
        for x, y in loader(24):
            outputs.append(step(x, y)[0].detach().cpu())
    elif name == "retain-graph-twice-no-keep":
        for x, y in loader(16):
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward(retain_graph=True)
            loss.backward()
            opt.step()
    elif name == "validation-every-few-steps-clean":
        for n, (x, y) in enumerate(loader(24)):
            step(x, y)
            if n % 6 == 5:
                with torch.no_grad():
                    torch.stack([F.cross_entropy(model(a), b) for a, b in loader(4)]).mean().item()
    elif name == "checkpoint-state-on-cpu":
        best = None
        for n, (x, y) in enumerate(loader(20)):
            step(x, y)
            if n % 4 == 3:
                best = {k: v.cpu() for k, v in model.state_dict().items()}
    elif name == "two-optimizers-alternate":
        second = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
        for n, (x, y) in enumerate(loader(24)):
            which = opt if n % 2 == 0 else second
            which.zero_grad()
            F.cross_entropy(model(x), y).backward()
            which.step()
    elif name == "accumulate-sum-of-losses-freed":
        for _ in range(8):
            total = 0
            for x, y in loader(4):
                total = total + F.cross_entropy(model(x), y)
            opt.zero_grad()
            total.backward()
            opt.step()
    else:
        sys.exit(f"no such loop: {name}")


if __name__ == "__main__":
    main(sys.argv[1])

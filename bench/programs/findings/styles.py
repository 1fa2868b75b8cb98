"""More training loops with one leak each, or with none, as people write them. Usage: styles.py NAME

The comments `leak` and `or` are those of `lines.py`. Which of them leak, and where, was
written down before anything was measured; `ema-with-graph` was thought to leak and
does not; `evaluation-lists-at-the-peak` was thought not to, and what it collects is its peak.
"""

import collections
import copy
import functools
import sys
import weakref

LEAKS = ["logger-holds-tensors", "total-loss-plus", "lru-cache-of-activations", "tracebacks-kept",
         "closures-per-step", "optimizer-registry", "growing-vocabulary", "gradient-history", "hidden-kept-for-plots",
         "masks-by-length-and-step", "counts-without-modules", "retain-in-a-dict-of-epochs", "memo-of-frozen-features",
         "evaluation-lists-at-the-peak"]
CLEAN = ["cycles-for-the-collector", "ema-with-graph", "ema-done-right", "rollout-cleared-each-episode", "bounded-replay", "optimizer-each-epoch",
         "metric-objects-on-the-device", "masks-cached-by-length", "pinned-loader", "vocabulary-resized-once",
         "retain-graph-two-losses", "gradient-norms-as-numbers", "lru-cache-with-a-size", "weak-references", "best-model-kept",
         "lookahead-weights"]


def batches(torch, n, *shape):
    for _ in range(n):
        yield torch.randn(*shape, device="cuda")


def step(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


def mlp(nn, width=512, out=512):
    return nn.Sequential(nn.Linear(width, 2048), nn.GELU(), nn.Linear(2048, out)).cuda()


def logger_holds_tensors(torch, F, nn):
    class Logger:
        def __init__(self):
            self.rows = []

        def log(self, **values):
            self.rows.append(values)

    model, logger = mlp(nn), Logger()
    opt = torch.optim.AdamW(model.parameters())
    for n, x in enumerate(batches(torch, 14, 1024, 512)):
        out = model(x)  # or
        loss = out.square().mean()
        step(opt, loss)
        logger.log(step=n, loss=loss.item(), sample=out)  # leak


def ema_with_graph(torch, F, nn):
    model = mlp(nn)
    average = [it.detach().clone() for it in model.parameters()]
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for x in batches(torch, 12, 256, 512):
        step(opt, model(x).square().mean())
        # A graph that grows, of numbers only: nothing on the device stays.
        average = [0.99 * old + 0.01 * new for old, new in zip(average, model.parameters(), strict=True)]


def total_loss_plus(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.Adam(model.parameters())
    total = 0
    for x in batches(torch, 12, 512, 512):
        loss = model(x).pow(2).mean()  # or
        step(opt, loss)
        total += F.mse_loss(model(x * 0.5), x)  # leak
    print(total.item() / 12)


def lru_cache_of_activations(torch, F, nn):
    model = mlp(nn)
    head = nn.Linear(512, 10).cuda()
    opt = torch.optim.SGD(head.parameters(), 0.01)
    data = [torch.randn(512, 512, device="cuda") for _ in range(14)]

    @functools.lru_cache(maxsize=None)
    def features(n):
        with torch.no_grad():
            return model(data[n])  # leak

    for n in range(14):
        step(opt, head(features(n)).square().mean())  # or


def tracebacks_kept(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    failures = []

    def one(x):
        out = model(x)  # leak
        if out.numel():
            raise ValueError("nan in the batch")
        return out

    for x in batches(torch, 14, 512, 512):
        try:
            one(x)
        except ValueError as error:
            failures.append(error)  # or
        step(opt, model(x[:64]).square().mean())


def closures_per_step(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    later = []
    for x in batches(torch, 14, 512, 512):
        out = model(x)  # or
        step(opt, out.square().mean())
        later.append(lambda out=out: out.mean().item())  # leak


def optimizer_registry(torch, F, nn):
    made = []
    model = mlp(nn)
    for _ in range(8):
        opt = torch.optim.Adam(model.parameters())
        made.append(opt)
        for x in batches(torch, 3, 128, 512):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()  # leak


def growing_vocabulary(torch, F, nn):
    table = nn.Embedding(4096, 256).cuda()
    old = []
    opt = torch.optim.SGD(table.parameters(), 0.1)
    for n in range(14):
        step(opt, table(torch.randint(0, table.num_embeddings, (512,), device="cuda")).square().mean())
        larger = nn.Embedding(table.num_embeddings, 256).cuda()  # leak
        with torch.no_grad():
            larger.weight.copy_(table.weight)
        old.append(table)
        table = larger
        opt = torch.optim.SGD(table.parameters(), 0.1)


def gradient_history(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.AdamW(model.parameters())
    history = []
    for x in batches(torch, 12, 128, 512):
        opt.zero_grad()
        model(x).square().mean().backward()  # or
        history.append([it.grad.clone() for it in model.parameters()])  # leak
        opt.step()


def hidden_kept_for_plots(torch, F, nn):
    cell, head = nn.GRUCell(256, 512).cuda(), nn.Linear(512, 8).cuda()
    opt = torch.optim.Adam([*cell.parameters(), *head.parameters()])
    trajectories = []
    for _ in range(10):
        state = torch.zeros(64, 512, device="cuda")
        for x in batches(torch, 8, 64, 256):
            state = cell(x, state)  # or
        trajectories.append(state.clone())  # leak
        step(opt, head(state).square().mean())


def masks_by_length_and_step(torch, F, nn):
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True).cuda()
    opt = torch.optim.SGD(layer.parameters(), 0.01)
    masks = {}
    for n in range(14):
        length = 256 + n % 3
        key = (length, n)
        if key not in masks:
            masks[key] = torch.triu(torch.full((length, length), float("-inf"), device="cuda"), 1)  # leak
        step(opt, layer(torch.randn(2, length, 128, device="cuda"), src_mask=masks[key]).square().mean())


def counts_without_modules(torch, F, nn):
    w = torch.randn(512, 512, device="cuda", requires_grad=True)
    kept = []
    for x in batches(torch, 16, 256, 512):
        y = (x @ w).tanh()  # or
        y.square().mean().backward()
        with torch.no_grad():
            w -= 0.01 * w.grad
            w.grad = None
        kept.append((y.argmax(-1) == 3).sum(0, keepdim=True).expand(65536).contiguous())  # leak


def retain_in_a_dict_of_epochs(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    seen = collections.defaultdict(list)
    for epoch in range(4):
        for x in batches(torch, 4, 256, 512):
            loss = model(x).square().mean()  # or
            opt.zero_grad()
            loss.backward(retain_graph=True)
            opt.step()
            seen[epoch].append(loss)  # leak


def memo_of_frozen_features(torch, F, nn):
    backbone, head = mlp(nn).eval(), nn.Linear(512, 10).cuda()
    opt = torch.optim.SGD(head.parameters(), 0.01)
    memo = {}
    for n, x in enumerate(batches(torch, 14, 512, 512)):
        with torch.no_grad():
            memo[n] = backbone(x)  # leak
        step(opt, head(memo[n]).square().mean())


def cycles_for_the_collector(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.SGD(model.parameters(), 0.01)

    class Node:
        pass

    for n, x in enumerate(batches(torch, 24, 256, 512)):
        node = Node()
        node.me, node.out = node, model(x)
        step(opt, node.out.square().mean())
        if n % 4 == 3:
            import gc

            gc.collect()


def ema_done_right(torch, F, nn):
    model = mlp(nn)
    average = copy.deepcopy(model)
    opt = torch.optim.AdamW(model.parameters())
    for x in batches(torch, 14, 256, 512):
        step(opt, model(x).square().mean())
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.mul_(0.99).add_(new, alpha=0.01)


def rollout_cleared_each_episode(torch, F, nn):
    policy = mlp(nn, 64, 8)
    opt = torch.optim.Adam(policy.parameters())
    states, rewards = [], []
    for _ in range(8):
        for _ in range(6):
            states.append(torch.randn(512, 64, device="cuda"))
            rewards.append(torch.randn(512, device="cuda"))
            with torch.no_grad():
                policy(states[-1]).argmax(-1)
        for _ in range(2):
            step(opt, (policy(torch.cat(states))[:, 0] * torch.cat(rewards)).mean())
        states.clear()
        rewards.clear()


def bounded_replay(torch, F, nn):
    net = mlp(nn, 128, 8)
    opt = torch.optim.Adam(net.parameters())
    buffer = collections.deque(maxlen=10)
    for x in batches(torch, 40, 512, 128):
        buffer.append((x, torch.randn(512, device="cuda")))
        x, wanted = buffer[len(buffer) // 2]
        step(opt, (net(x)[:, 0] - wanted).square().mean())


def optimizer_each_epoch(torch, F, nn):
    model = mlp(nn)
    for _ in range(6):
        opt = torch.optim.Adam(model.parameters())
        for x in batches(torch, 4, 128, 512):
            step(opt, model(x).square().mean())


def metric_objects_on_the_device(torch, F, nn):
    class Confusion:
        def __init__(self):
            self.matrix = torch.zeros(512, 512, device="cuda", dtype=torch.long)

        def update(self, out, wanted):
            self.matrix += torch.bincount(wanted * 512 + out, minlength=512 * 512).view(512, 512)

    model, metric = mlp(nn), Confusion()
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for x in batches(torch, 14, 512, 512):
        out = model(x)
        step(opt, out.square().mean())
        metric.update(out.detach().argmax(-1), torch.randint(0, 512, (512,), device="cuda"))


def masks_cached_by_length(torch, F, nn):
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True).cuda()
    opt = torch.optim.SGD(layer.parameters(), 0.01)
    masks = {}
    for n in range(24):
        length = 128 + n * 7 % 5 * 32
        if length not in masks:
            masks[length] = torch.triu(torch.full((length, length), float("-inf"), device="cuda"), 1)
        step(opt, layer(torch.randn(2, length, 128, device="cuda"), src_mask=masks[length]).square().mean())


def pinned_loader(torch, F, nn):
    data = torch.utils.data.TensorDataset(torch.randn(640, 512), torch.randint(0, 8, (640,)))
    loader = torch.utils.data.DataLoader(data, 64, shuffle=True, pin_memory=True)
    model = mlp(nn, out=8)
    opt = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        for x, y in loader:
            step(opt, F.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True)))


def vocabulary_resized_once(torch, F, nn):
    table = nn.Embedding(8192, 256).cuda()
    opt = torch.optim.Adam(table.parameters())
    for n in range(14):
        step(opt, table(torch.randint(0, 8192, (512,), device="cuda")).square().mean())
        if n == 6:
            larger = nn.Embedding(8300, 256).cuda()
            with torch.no_grad():
                larger.weight[:8192] = table.weight
            table = larger
            opt = torch.optim.Adam(table.parameters())


def retain_graph_two_losses(torch, F, nn):
    body, left, right = mlp(nn), nn.Linear(512, 8).cuda(), nn.Linear(512, 8).cuda()
    opt = torch.optim.Adam([*body.parameters(), *left.parameters(), *right.parameters()])
    for x in batches(torch, 14, 256, 512):
        hidden = body(x)
        opt.zero_grad()
        left(hidden).square().mean().backward(retain_graph=True)
        right(hidden).abs().mean().backward()
        opt.step()


def gradient_norms_as_numbers(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.AdamW(model.parameters())
    norms = []
    for x in batches(torch, 14, 256, 512):
        opt.zero_grad()
        model(x).square().mean().backward()
        norms.append([it.grad.norm().item() for it in model.parameters()])
        opt.step()


def lru_cache_with_a_size(torch, F, nn):
    model, head = mlp(nn), nn.Linear(512, 10).cuda()
    opt = torch.optim.SGD(head.parameters(), 0.01)
    data = [torch.randn(512, 512) for _ in range(16)]

    @functools.lru_cache(maxsize=4)
    def features(n):
        with torch.no_grad():
            return model(data[n].cuda())

    for n in range(32):
        step(opt, head(features(n % 16)).square().mean())


def weak_references(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.SGD(model.parameters(), 0.01)
    seen = []
    for x in batches(torch, 14, 256, 512):
        out = model(x)
        seen.append(weakref.ref(out))
        step(opt, out.square().mean())


def best_model_kept(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.AdamW(model.parameters())
    best = None
    for n, x in enumerate(batches(torch, 18, 256, 512)):
        step(opt, model(x).square().mean())
        if n % 3 == 2:
            best = {name: it.detach().clone() for name, it in model.state_dict().items()}
    print(len(best))


def lookahead_weights(torch, F, nn):
    model = mlp(nn)
    slow = [it.detach().clone() for it in model.parameters()]
    opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for n, x in enumerate(batches(torch, 20, 256, 512)):
        step(opt, model(x).square().mean())
        if n % 5 == 4:
            with torch.no_grad():
                slow = [old + 0.5 * (new - old) for old, new in zip(slow, model.parameters(), strict=True)]
                for new, old in zip(model.parameters(), slow, strict=True):
                    new.copy_(old)


def evaluation_lists_at_the_peak(torch, F, nn):
    model = mlp(nn)
    opt = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        model.train()
        for x in batches(torch, 4, 256, 512):
            step(opt, model(x).square().mean())
        model.eval()
        with torch.no_grad():
            out = [model(x) for x in batches(torch, 6, 512, 512)]  # leak
            print(torch.cat(out).mean().item())
        del out


if __name__ == "__main__":
    import torch

    globals()[sys.argv[1].replace("-", "_")](torch, torch.nn.functional, torch.nn)

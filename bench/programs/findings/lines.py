"""Training loops with one leak each, or with none. Usage: lines.py NAME

`explained.py findings` asks whether `plimsoll explain` names the line: the one that keeps what it should not has the comment `leak`, and
one that may be named as well, which made what is kept, `or`. Which loops leak was written before anything was measured.
"""

import copy
import sys

LEAKS = ["policy-gradient", "meter-with-graph", "hook-dict", "function-stash", "queue-without-end", "view-of-a-batch"]
CLEAN = ["queue-with-pointer", "episodes-of-any-length", "losses-cleared", "larger-images", "average-model-late"]


def policy_gradient(torch, F, nn):
    policy = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 8)).cuda()
    opt = torch.optim.Adam(policy.parameters())
    log_probs = []
    for _ in range(12):
        state = torch.randn(2048, 64, device="cuda")
        logits = policy(state)  # or
        chosen = torch.randint(0, 8, (2048, 1), device="cuda")
        log_probs.append(F.log_softmax(logits, -1).gather(1, chosen))  # leak
        loss = -(log_probs[-1] * torch.randn(2048, 1, device="cuda")).mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()


def meter_with_graph(torch, F, nn):
    model = nn.LSTM(256, 512, batch_first=True).cuda()
    opt = torch.optim.SGD(model.parameters(), 0.01)
    meters = {"loss": 0.0}
    for _ in range(12):
        x = torch.randn(16, 32, 256, device="cuda")
        out, _ = model(x)  # or
        loss = out.square().mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()
        meters["loss"] = meters["loss"] * 0.9 + loss * 0.1  # leak


def hook_dict(torch, F, nn):
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()).cuda()
    opt = torch.optim.AdamW(model.parameters())
    seen = {}
    now = 0

    def keep(module, inputs, output):
        seen[now, id(module)] = output.detach()  # leak

    model[2].register_forward_hook(keep)
    for now in range(12):
        x = torch.randn(8, 3, 64, 64, device="cuda")
        out = model(x)  # or
        opt.zero_grad()
        out.mean().backward()
        opt.step()


def function_stash(torch, F, nn):
    class Scale(torch.autograd.Function):
        stash = []

        @staticmethod
        def forward(ctx, x):
            y = x * 2  # or
            Scale.stash.append(y)  # leak
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    layer = nn.Linear(1024, 1024).cuda()
    opt = torch.optim.SGD(layer.parameters(), 0.01)
    for _ in range(12):
        loss = Scale.apply(layer(torch.randn(512, 1024, device="cuda"))).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def queue_without_end(torch, F, nn):
    encoder = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128)).cuda()
    opt = torch.optim.SGD(encoder.parameters(), 0.01)
    queue = torch.zeros(0, 128, device="cuda")
    for _ in range(16):
        x = torch.randn(1024, 512, device="cuda")
        key = F.normalize(encoder(x), dim=-1)
        loss = (key @ queue.T).logsumexp(-1).mean() if len(queue) else key.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        queue = torch.cat([queue, key.detach()])  # leak


def view_of_a_batch(torch, F, nn):
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).cuda()
    opt = torch.optim.Adam(model.parameters())
    shown = []
    for _ in range(12):
        x = torch.randn(32, 3, 96, 96, device="cuda")  # or
        shown.append(x[:4])  # leak
        loss = F.cross_entropy(model(x), torch.randint(0, 10, (32,), device="cuda"))
        opt.zero_grad()
        loss.backward()
        opt.step()


def queue_with_pointer(torch, F, nn):
    encoder = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128)).cuda()
    opt = torch.optim.SGD(encoder.parameters(), 0.01)
    queue = torch.zeros(8192, 128, device="cuda")
    for n in range(16):
        key = F.normalize(encoder(torch.randn(1024, 512, device="cuda")), dim=-1)
        loss = (key @ queue.T).logsumexp(-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            queue[n % 8 * 1024 : (n % 8 + 1) * 1024] = key


def episodes_of_any_length(torch, F, nn):
    policy = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 8)).cuda()
    opt = torch.optim.Adam(policy.parameters())
    for length in (3, 5, 4, 9, 6, 12, 5, 15):
        kept = []
        for _ in range(length):
            kept.append(F.log_softmax(policy(torch.randn(1024, 64, device="cuda")), -1)[:, 0])
        loss = -torch.stack(kept).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def losses_cleared(torch, F, nn):
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
    opt = torch.optim.AdamW(model.parameters())
    losses, outputs = [], []
    for n in range(20):
        out = model(torch.randn(512, 512, device="cuda"))
        loss = out.square().mean()
        losses.append(loss.detach())
        outputs.append(out.detach())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if n % 4 == 3:
            print(torch.stack(losses).mean().item())
            losses.clear()
            outputs.clear()


def larger_images(torch, F, nn):
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 8, 3)).cuda()
    opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for side in (32, 32, 32, 48, 48, 48, 64, 64, 64, 96, 96, 96):
        loss = model(torch.randn(16, 3, side, side, device="cuda")).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def average_model_late(torch, F, nn):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 2).cuda()
    opt = torch.optim.AdamW(model.parameters())
    average = None
    for n in range(14):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(torch.randn(8, 64, 256, device="cuda")).float().square().mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if n == 6:
            average = copy.deepcopy(model)
        elif average is not None:
            with torch.no_grad():
                for mine, new in zip(average.parameters(), model.parameters(), strict=True):
                    mine.lerp_(new, 0.01)


def main(name):
    import torch

    globals()[name.replace("-", "_")](torch, torch.nn.functional, torch.nn)


if __name__ == "__main__":
    main(sys.argv[1])

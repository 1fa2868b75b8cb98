"""Training loops with one leak each, or with none: does `plimsoll explain` name the line? Usage: lines.py NAME

    bench/findings/lines.py --check --plimsoll target/release/plimsoll --python .venv/bin/python

The line that keeps what it should not has the comment `leak`; a finding may also name the line below that comment's
`or`, which made what is kept. Which loops leak was written before anything was measured.
"""

import argparse
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import models  # noqa: E402
import styles  # noqa: E402

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


def lines_of(file, name):
    """Lines of `file` that a finding may name."""
    text = pathlib.Path(file).read_text().splitlines()
    start = next(n for n, it in enumerate(text, 1) if it.startswith(f"def {name.replace('-', '_')}("))
    end = next((n for n, it in enumerate(text, 1) if start < n and it.startswith("def ")), len(text))
    return {n for n in range(start, end) if text[n - 1].endswith(("# leak", "# or"))}


def check(plimsoll, python, only):
    right = 0
    programs = [(__file__, LEAKS, it) for it in LEAKS + CLEAN]
    programs += [(one.__file__, one.LEAKS, it) for one in (styles, models) for it in one.LEAKS + one.CLEAN]
    programs = [it for it in programs if not only or it[2] in only]
    for file, leaks, name in programs:
        with tempfile.TemporaryDirectory() as folder:
            record = pathlib.Path(folder, "run.zip")
            words = [plimsoll, "predict", "--gpu", "rtx4090-24g", "--record", record, "--", python, file, name]
            ran = subprocess.run(list(map(str, words)), capture_output=True, text=True)
            if not record.is_file():
                print(f"| {name} | failed: {ran.stderr.splitlines()[-1:]} | no |")
                continue
            text = subprocess.run([plimsoll, "explain", record, "--json", "-"], capture_output=True, text=True).stdout
        found = [it for it in json.loads(text)["findings"] if it["code"].startswith(("leak/", "growth/"))]
        told = [(it["code"], json.dumps(it)) for it in found]
        if name not in leaks:
            good = not found
        else:
            good = any(f'"line": {n},' in it for n in lines_of(file, name) for _, it in told[:1])
        right += good
        print(f"| {name} | {', '.join(it for it, _ in told) or '-'} | {'yes' if good else '**no**'} |", flush=True)
    print(f"{right} of {len(programs)} right")


if __name__ == "__main__":
    if "--check" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--check", action="store_true")
        parser.add_argument("names", nargs="*", help="only these")
        parser.add_argument("--plimsoll", required=True)
        parser.add_argument("--python", default=sys.executable)
        args = parser.parse_args()
        check(args.plimsoll, args.python, args.names)
    else:
        main(sys.argv[1])

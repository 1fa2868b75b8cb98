"""Pairs of versions of small scripts: does `plimsoll check` find each change of memory above half a percent, and invent none?

    python bench/instruments/check.py [--plimsoll BINARY] [--python PYTHON]

Each pair is a script and an edit of it. What changed in truth is told by `predict` on both versions, which shares no code with the comparison: the
peaks of allocated and reserved memory. `check` is right if it fails exactly where one of them changed by more than half a percent, and if it
names a line that the edit touches or that makes the tensors it is about (`line`, a part of its text).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 0.005
MLP = """\
import torch
from torch import nn

BATCH, WIDTH = 512, 1024

def main():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(6):
        optimizer.zero_grad()
        x = torch.randn(BATCH, WIDTH, device="cuda")
        y = torch.randint(0, 10, (BATCH,), device="cuda")
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        print(step)

main()
"""
CNN = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.relu(self.norm(self.body(x)))
        return self.head(x.mean((2, 3)))

def main():
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(6):
        x = torch.randn(32, 3, 64, 64, device="cuda")
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

main()
"""
TRANSFORMER = """\
import torch
from torch import nn

def evaluate(model, n):
    model.eval()
    with torch.no_grad():
        for _ in range(n):
            model(torch.randn(8, 128, 256, device="cuda"))

def main():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = nn.TransformerEncoder(layer, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        model.train()
        optimizer.zero_grad(set_to_none=True)
        hidden = model(torch.randn(8, 128, 256, device="cuda"))
        loss = hidden.square().mean()
        loss.backward()
        optimizer.step()
    evaluate(model, 2)

main()
"""
SCRIPTS = {"mlp": MLP, "cnn": CNN, "transformer": TRANSFORMER}
# Script, what is replaced, by what, and a part of the line that is to be named; none where memory does not change.
PAIRS = [
    ("mlp", "BATCH, WIDTH = 512", "BATCH, WIDTH = 640", "model(x)"),
    ("mlp", "BATCH, WIDTH = 512", "BATCH, WIDTH = 448", "model(x)"),
    ("mlp", "nn.Linear(WIDTH, 10)", "nn.Linear(WIDTH, 4096)", "nn.Linear"),
    ("mlp", "AdamW", "SGD", "optimizer"),
    ("mlp", "lr=1e-3", "lr=1e-3, foreach=False", "optimizer.step"),
    ("mlp", "        optimizer.zero_grad()\n", "        optimizer.zero_grad(set_to_none=False)\n", None),
    ("mlp", "nn.ReLU(), nn.Linear(WIDTH, 10)", "nn.ReLU(inplace=True), nn.Linear(WIDTH, 10)", "model(x)"),
    ("mlp", "        out = model(x)\n", "        out = model(x)\n        probabilities = torch.cat([out.softmax(-1)] * 400)\n", "torch.cat"),
    ("mlp", "        print(step)\n", "        print(step, flush=True)\n", None),
    ("mlp", "import torch\n", "# Trains a small network.\n\nimport torch\n", None),
    ("mlp", "lr=1e-3", "lr=3e-4", None),
    ("mlp", "def main():", "def unused():\n    return torch.ones(10)\n\n\ndef main():", None),
    ("cnn", "channels=32", "channels=40", "self."),
    ("cnn", "torch.randn(32, 3", "torch.randn(33, 3", "torch.relu"),
    ("cnn", "losses.append(loss.item())", "losses.append(net(x))", "torch.relu"),
    ("cnn", "        x = torch.relu(self.stem(x))\n", "        x = self.stem(x).relu_()\n", "self.stem"),
    ("cnn", "momentum=0.9", "momentum=0.0", None),
    ("cnn", "    net = Net().cuda()", "    net = Net().cuda().to(memory_format=torch.channels_last)", None),
    ("cnn", "torch.relu(self.norm(self.body(x)))", "torch.sigmoid(self.norm(self.body(x)))", None),
    ("cnn", "lr=0.1", "lr=0.2, nesterov=True", None),
    ("cnn", "losses = []", "losses: list[float] = []", None),
    ("cnn", "x.mean((2, 3))", "x.amax((2, 3))", "mean"),
    ("transformer", "hidden = model(torch.randn(8,", "hidden = model(torch.randn(9,", "model(torch"),
    ("transformer", "256, 4, 1024", "256, 4, 1280", "model(torch"),
    ("transformer", "256, 4, 1024", "256, 8, 1024", "model(torch"),
    ("transformer", "(layer, 4)", "(layer, 5)", "model"),
    ("transformer", "    with torch.no_grad():", "    with torch.enable_grad():", None),
    ("transformer", "model(torch.randn(8, 128, 256, device=\"cuda\"))\n\ndef", "model(torch.randn(8, 1024, 256, device=\"cuda\"))\n\ndef", "model(torch"),
    ("transformer", "evaluate(model, 2)", "evaluate(model, 3)", None),
    ("transformer", "loss = hidden.square().mean()", "loss = (hidden * hidden).mean()", None),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", default="target/release/plimsoll")
    parser.add_argument("--python", default=os.environ.get("PLIMSOLL_PYTHON", sys.executable))
    given = parser.parse_args()
    binary = str(Path(given.plimsoll).resolve())

    def run(folder, *words):
        return subprocess.run([binary, *words], cwd=folder, capture_output=True, text=True)

    def peaks(folder):
        ran = run(folder, "predict", "--gpu", "t4", "--quiet", "--until-exit", "--json", "report.json", "--", given.python, "train.py")
        assert ran.returncode == 0, ran
        report = json.loads((folder / "report.json").read_text())
        return report["peak_allocated_bytes"], report["peak_reserved_bytes"]

    print("| pair | allocated | reserved | in truth | check | first line named | |\n|---|---|---|---|---|---|---|")
    n_right = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        before = {}
        for name, text in SCRIPTS.items():
            home = folder / name
            home.mkdir()
            (home / "train.py").write_text(text)
            before[name] = peaks(home)
            ran = run(home, "check", "--add", "train", "--gpu", "t4", "--steps", "100", "--", given.python, "train.py")
            assert ran.returncode == 0, ran
        for number, (name, old, new, line) in enumerate(PAIRS, 1):
            assert SCRIPTS[name].count(old) >= 1, old
            home = folder / name
            (home / "train.py").write_text(SCRIPTS[name].replace(old, new))
            after = peaks(home)
            shares = [b / a - 1 for a, b in zip(before[name], after)]
            truth = any(abs(it) > LIMIT for it in shares)
            ran = run(home, "check", "--format", "json")
            [it] = json.loads(ran.stdout)["scripts"]
            said = it["verdict"] == "changed"
            named = it.get("lines") or [{}]
            text = named[0].get("text", "")
            is_named = line is None or any(line in it.get("text", "") for it in named)
            # A category may change where the totals do not; that is said, and is no invention.
            only_category = said and not it["totals"]
            right = (truth == (said and not only_category)) and (not truth or is_named) and it["verdict"] != "could_not_tell"
            n_right += right
            cells = [f"{number} {name}: `{old.strip()[:34]}` to `{new.strip()[:40]}`", *(f"{it:+.2%}" for it in shares), "changed" if truth else "same"]
            cells += [it["verdict"].replace("_", " ") + (" (a category)" if only_category else ""), f"`{text[:50]}`" if said else "", "right" if right else "WRONG"]
            print("| " + " | ".join(it.replace("\n", " ").replace("|", "\\|") for it in cells) + " |", flush=True)
    print(f"\n{n_right} of {len(PAIRS)} right")


if __name__ == "__main__":
    main()

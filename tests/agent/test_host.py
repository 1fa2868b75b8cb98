"""What the process has of the host's memory is noted at the ends of steps and in the end."""

from test_steps import MODEL

KEEPS = (
    MODEL
    + """
opt = torch.optim.SGD(net.parameters(), 0.1)
kept = []
for i in range(8):
    opt.zero_grad(); x, y = batch(); F.cross_entropy(net(x), y).backward(); opt.step()
    kept.append(torch.ones(16 << 20, dtype=torch.uint8))
"""
)

REMEMBERS = """
import torch, torch.nn as nn, torch.nn.functional as F
class Data(torch.utils.data.Dataset):
    def __init__(self): self.seen = []
    def __len__(self): return 1000
    def __getitem__(self, i):
        self.seen.append(torch.ones(1 << 20, dtype=torch.uint8))
        return torch.randn(64), 0
net = nn.Linear(64, 10).cuda()
opt = torch.optim.AdamW(net.parameters())
for x, y in torch.utils.data.DataLoader(Data(), 4, num_workers=2):
    opt.zero_grad(); F.cross_entropy(net(x.cuda()), y.cuda()).backward(); opt.step()
"""


def test_what_is_kept_on_the_host_is_seen_in_each_step(run):
    process = run(KEEPS, stop="until-exit").process
    levels = [step["host"] >> 20 for step in process.steps]
    rises = [after - before for before, after in zip(levels[1:], levels[2:])]
    assert all(15 <= rise <= 17 for rise in rises), levels
    assert all(step.get("workers") is None for step in process.steps)
    host = process.one("host")
    assert host["peak"] >= process.steps[-1]["host"]
    assert host["total"] > host["peak"] and host["swapped"] is not None and host["pinned"] == 0


def test_workers_are_read_after_some_steps(run):
    process = run(REMEMBERS, stop="until-exit").process
    levels = {step["step"]: step["workers"] for step in process.steps if step.get("workers")}
    assert set(levels) <= {1 << n for n in range(9)} and 64 in levels, levels
    # 4 samples of 1 MiB a step, and some ahead.
    assert 150 << 20 < levels[64] - levels[16] < 250 << 20, levels

"""What the samples of a data set say without a step, and that a look at them changes nothing."""

import pytest
from test_steps import MODEL

TRAINS = (
    MODEL
    + """
import random, os
from torch.utils.data import DataLoader, Dataset
opt = torch.optim.SGD(net.parameters(), 0.1)
def train(data, **options):
    for epoch in range(2):
        for sample in DataLoader(data, 1, **options):
            x = sample["x"] if isinstance(sample, dict) else sample[0] if isinstance(sample, (list, tuple)) else sample
            opt.zero_grad(); net(x.reshape(-1, 64).cuda()).sum().backward(); opt.step()
"""
)

DATA = {
    "one large tensor": ("return torch.randn((200_000 if i == 217 else 2), 64)", 217, "12,800,000 numbers,"),
    "boxes beside a picture": ("return torch.randn(3, 64, 64), torch.zeros(3000 if i == 361 else 1 + i % 20, 4)", 361, "12,000 numbers ([1]),"),
    "words in a dictionary": ("return {'x': torch.randn(64), 'words': list(range(9000 if i == 399 else 30 + i % 7))}", 399, "9,000 numbers (['words']),"),
}


@pytest.mark.parametrize("what", sorted(DATA))
def test_a_sample_that_is_far_larger_is_named(run, what):
    item, index, size = DATA[what]
    r = run(TRAINS + f"class Data(Dataset):\n    def __len__(self): return 400\n    def __getitem__(self, i): {item}\ntrain(Data(), collate_fn=lambda it: it[0])", stop="validation")
    assert (r.returncode, r.stderr) == (0, "")
    (note,) = [it for it in r.process.all("note") if it["code"] == "larger-sample"]
    assert f"sample {index} of the data set" in note["text"] and size in note["text"]


def test_samples_that_differ_a_little_are_not_named(run):
    r = run(TRAINS + "class Data(Dataset):\n    def __len__(self): return 400\n    def __getitem__(self, i): return torch.randn(20 + i % 17, 64)\ntrain(Data())", stop="validation")
    assert (r.returncode, r.stderr) == (0, "") and r.process.notes == []


def test_a_look_changes_nothing(run):
    """Counters, random states, caches, files: as they would be without it."""
    script = (
        TRAINS
        + """
class Data(Dataset):
    def __init__(self): self.asked, self.cache = 0, {}
    def __len__(self): return 400
    def __getitem__(self, i):
        self.asked += 1; self.cache[i] = random.random()
        if self.asked > 60: open("written.txt", "a").write("x")
        return torch.randn(64)
data = Data()
train(data)
print(data.asked, sorted(data.cache) == list(range(len(data.cache))), os.path.exists("written.txt"))
"""
    )
    r = run(script, stop="validation")
    assert (r.returncode, r.stderr) == (0, "")
    asked, whole, written = r.stdout.split()
    assert int(asked) < 60 and (whole, written) == ("True", "False")


def test_data_on_the_device_is_not_asked(run):
    r = run(TRAINS + "class Data(Dataset):\n    def __len__(self): return 400\n    def __getitem__(self, i): return torch.randn((9000 if i == 217 else 1), 64, device='cuda')\ntrain(Data())", stop="validation")
    assert (r.returncode, r.stderr) == (0, "") and r.process.notes == []


@pytest.mark.matrix(1)
@pytest.mark.parametrize("workers", [0, 2])
def test_every_batch_has_the_largest_sample_where_that_is_asked_for(run, workers):
    item, index, size = DATA["one large tensor"]
    script = TRAINS + f"class Data(Dataset):\n    def __len__(self): return 400\n    def __getitem__(self, i): {item}\ntrain(Data(), num_workers={workers})"
    plain, worst = (run(script, stop="steps:3", env=env).process for env in ({}, {"PLIMSOLL_WORST_SAMPLE": "1"}))
    (note,) = [it for it in worst.all("note") if it["code"] == "worst-sample"]
    assert "put sample 217 into every batch" in note["text"]
    assert 300 << 20 < worst.one("stats")["peak_allocated"] and plain.one("stats")["peak_allocated"] < 100 << 20

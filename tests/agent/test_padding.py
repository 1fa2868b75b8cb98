"""How much of the training's batches is padding: only of batches of texts, as a model is given them, with values that the host has."""

import pytest

TEXT = """
import torch, torch.nn as nn, random
from torch.utils.data import DataLoader
random.seed(0)
rows = [[random.randrange(1, 500) for _ in range(random.randint(5, 40))] for _ in range(64)]
def padded(row, length=128, pad=0): return row + [pad] * (length - len(row))
%s
net = nn.Sequential(nn.Embedding(600, 8), nn.Linear(8, 8)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for ids in DataLoader(data, 8):
    ids = ids%s
    loss = net(ids.long().cuda()).sum()
    opt.zero_grad(); loss.backward(); opt.step()
"""


def found(run, data, then=""):
    lines = run(TEXT % (data, then), stop="validation").process.all("padding")
    return (lines[-1]["length"], lines[-1]["longest"]) if lines else None


@pytest.mark.parametrize(
    "data",
    [
        "data = [torch.tensor(padded(it)) for it in rows]",
        "data = [torch.tensor(padded(it, pad=599)) for it in rows]",
        "data = [torch.tensor(padded(it)[::-1]) for it in rows]",
        "data = [torch.tensor(padded(it), dtype=torch.int32) for it in rows]",
    ],
)
def test_texts_that_are_padded_to_one_length_are_measured(run, data):
    length, longest = found(run, data)
    assert length == 128 and 30 <= longest <= 40


@pytest.mark.parametrize(
    "data, then",
    [
        # Each row has its own last number; one row is as long as all.
        ("data = [torch.randint(1, 500, (128,)) for _ in rows]", ""),
        ("data = [torch.tensor(padded(it)) for it in rows]; data[3] = torch.arange(128)", ""),
        # Counts of words: zeros everywhere.
        ("data = [torch.bincount(torch.tensor(it) % 60, minlength=128) for it in rows]", ""),
        # Masks, labels of many classes.
        ("data = [torch.tensor(padded([1] * len(it))) for it in rows]", ""),
        # The script cuts its batches itself.
        ("data = [torch.tensor(padded(it)) for it in rows]", "[:, :40]"),
        # Lengths differ already.
        ("data = [torch.tensor(padded(it, 128 if n < 8 else 96)) for n, it in enumerate(rows)]", ""),
        # No numbers of words.
        ("data = [torch.tensor(padded(it), dtype=torch.float32) for it in rows]", ".long()"),
        ("data = [torch.tensor(padded(it[:4], 16)) for it in rows]", ""),
    ],
)
def test_what_is_no_padding_is_not_taken_for_it(run, data, then):
    measured = found(run, data, then)
    assert measured is None or measured[1] * 2 > measured[0]

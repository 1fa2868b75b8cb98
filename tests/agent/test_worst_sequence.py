"""`--worst-seq`: every batch as long as the longest that may come, wherever a script gets its batches from."""

import pytest

LOOP = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    def __len__(self): return 24
    def __getitem__(self, i): return torch.arange(4 + i % {variety}) % 50

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
    def forward(self, x):
        return self.head(self.embed(x))

net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
shapes = []
"""

PADDED = (
    LOOP
    + """
def collate(texts):
    x = nn.utils.rnn.pad_sequence(texts, batch_first={batch_first})
    return {given}
for batch in DataLoader(Texts(), batch_size=6, collate_fn=collate, num_workers={workers}):
    x, y = {taken}
    optimizer.zero_grad()
    F.cross_entropy(net(x.cuda()).flatten(0, 1), y.cuda().flatten()).backward()
    optimizer.step()
    shapes.append((tuple(x.shape), tuple(y.shape)))
print(shapes)
"""
)

PAIR = dict(given="x[:, :-1], x[:, 1:]", taken="batch", batch_first=True, workers=0, variety=9)


def lengths(process):
    return [(it["length"], it["how"]) for it in process.all("worst")]


@pytest.mark.parametrize(
    "changes, shape",
    [
        ({}, [(6, 40), (6, 40)]),
        ({"given": "dict(ids=x[:, :-1], names=['a'], more=[x])", "taken": "batch['ids'], batch['more'][0][:, 1:]"}, [(6, 39), (6, 39)]),
        ({"given": "x, x", "batch_first": False}, [(40, 6), (40, 6)]),
        ({"workers": 2}, [(6, 40), (6, 40)]),
        ({"variety": 1}, [(6, 40), (6, 40)]),  # No size differs: these are tokens.
    ],
)
def test_what_a_loader_gives_is_longer(run, changes, shape):
    """Labels come along; one less than another stays one less; time may come first."""
    r = run(PADDED.format(**(PAIR | changes)), stop="until-exit", env={"PLIMSOLL_BATCH_LENGTH": "40"})
    assert r.returncode == 0, r.stderr
    assert eval(r.stdout.replace("\n", "")) == [tuple(shape)] * 4
    (process,) = [it for it in r.processes if it.all("worst")]
    assert lengths(process) == [(40, "loader")] and "worst-seq" in process.notes


def test_the_longest_is_looked_for_in_all_the_data(run):
    program = PADDED.format(**(PAIR | {"given": "x, x", "variety": 23}))
    r = run(program, stop="steps:1", env={"PLIMSOLL_BATCH_LENGTH": "longest"})
    assert lengths(r.process) == [(26, "loader")], "the last batches have 18 to 22 more than the first four entries"


OWN_BATCHES = (
    LOOP.format(variety=1)
    + """
for _ in range(3):
    tokens = torch.randint(50, (6, 10), device="cuda")
    optimizer.zero_grad()
    out = net(tokens)
    F.cross_entropy(out.view(-1, 50), tokens.view(-1)).backward()
    optimizer.step()
    shapes.append(tuple(out.shape))
print(shapes)
"""
)


def test_batches_without_a_loader_are_longer_at_the_call_and_the_loss(run):
    r = run(OWN_BATCHES, stop="until-exit", env={"PLIMSOLL_BATCH_LENGTH": "32"})
    assert r.stdout == "[(6, 32, 50), (6, 32, 50), (6, 32, 50)]\n", r.stderr
    assert lengths(r.process) == [(32, "call")]


IMAGES = """
import torch
from torch.utils.data import DataLoader, TensorDataset
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 5)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
data = TensorDataset(torch.randn(10, 3, 4, 4), torch.randint(5, (10,)))
for x, y in DataLoader(data, batch_size=4):
    torch.nn.functional.cross_entropy(net(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""


def test_where_nothing_can_be_longer_it_is_said(run):
    r = run(IMAGES, env={"PLIMSOLL_BATCH_LENGTH": "32"})
    assert r.returncode != 0
    assert "--worst-seq found nothing to make longer" in r.stderr and "[0] 4x3x4x4" in r.stderr


TRANSFORMER = """
import torch
from transformers import BatchEncoding, GPT2Config, GPT2LMHeadModel
model = GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=64, n_embd=32, n_layer=2, n_head=2)).cuda().train()
optimizer = torch.optim.AdamW(model.parameters())
def texts():
    for n in (9, 14, 30, 17):
        yield dict(ids=torch.ones(n, dtype=torch.long))
def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([it["ids"] for it in rows], batch_first=True)
    return BatchEncoding({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()})
for batch in torch.utils.data.DataLoader(list(texts()), batch_size=2, collate_fn=collate):
    loss = model(**batch.to("cuda")).loss
    loss.backward()
    optimizer.step(); optimizer.zero_grad()
    print(tuple(batch["labels"].shape))
"""


def test_a_mapping_of_its_own_kind_and_positions_that_end(run):
    r = run(TRANSFORMER, stop="until-exit", env={"PLIMSOLL_BATCH_LENGTH": "64"})
    assert r.stdout == "(2, 64)\n(2, 64)\n", r.stderr
    too_long = run(TRANSFORMER, env={"PLIMSOLL_BATCH_LENGTH": "65"})
    assert "--worst-seq 65 is more than the 64 positions of GPT2LMHeadModel" in too_long.stderr


TEXTS = """
import torch
from torch.utils.data import DataLoader
texts = torch.zeros(8, 64, dtype=torch.long)
texts[:, :20] = torch.arange(20) + 3
net = torch.nn.Embedding(50, 16).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
shapes = []
for batch in DataLoader({data}, batch_size=4):
    x = {taken}
    optimizer.zero_grad()
    net(x.cuda()).sum().backward()
    optimizer.step()
    shapes.append(tuple(x.shape))
print(shapes)
"""


@pytest.mark.parametrize("data, taken", [("texts", "batch"), ("torch.utils.data.TensorDataset(texts, texts > 0)", "batch[0]"), ("[dict(ids=it) for it in texts]", "batch['ids']")])
def test_a_batch_is_cut_to_its_own_longest_text(run, data, taken):
    r = run(TEXTS.format(data=data, taken=taken), stop="until-exit", env={"PLIMSOLL_BATCH_LENGTH": "text"})
    assert r.returncode == 0, r.stderr
    assert eval(r.stdout) == [(4, 20)] * 2

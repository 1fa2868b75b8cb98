"""What is only advice makes the model that a person would write: looked at where numbers are real."""

import pytest

NET = """
import torch
from torch import nn

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2, padding=1, padding_mode="reflect"), nn.ReLU(), nn.Conv2d(16, 16, 1))
        self.twice = nn.Conv2d(16, 16, (3, 5), padding="same", bias=False)
        self.again = self.twice
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.head(self.again(self.twice(x)).mean((2, 3)))

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
before = [p.detach().clone() for p in model.parameters()]
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.tensor([0, 1, 2, 3])).backward()
    optimizer.step()
"""


@pytest.mark.soak
def test_separable_convolutions_are_what_is_trained(trainer):
    shapes, n_trained, shared = trainer.run(
        NET
        + """
own = {id(p) for p in model.parameters()}
trained = [p for group in optimizer.param_groups for p in group["params"]]
result = [[(n, list(p.shape)) for n, p in model.named_parameters()],
          len(own & {id(p) for p in trained if "momentum_buffer" in optimizer.state[p]}), model.twice is model.again]
""",
        "depthwise",
    )
    assert shapes == [
        ("stem.weight", [8, 3, 3, 3]),
        ("stem.bias", [8]),
        ("body.0.0.weight", [8, 1, 3, 3]),
        ("body.0.1.weight", [16, 8, 1, 1]),
        ("body.0.1.bias", [16]),
        ("body.2.weight", [16, 16, 1, 1]),
        ("body.2.bias", [16]),
        ("twice.0.weight", [16, 1, 3, 5]),
        ("twice.1.weight", [16, 16, 1, 1]),
        ("head.weight", [5, 16]),
        ("head.bias", [5]),
    ]
    assert n_trained == len(shapes) and shared


def test_half_of_the_weights_stay_zero(trainer):
    zeros = trainer.run(
        NET
        + """
layers = [model.stem, model.body[0], model.body[2], model.twice, model.head]
result = [int((it.weight == 0).sum()) / it.weight.numel() for it in layers]
""",
        "pruning",
    )
    assert zeros == [0.5] * 5


def test_what_a_model_has_nothing_for_is_said(trainer):
    program = "import torch\nmodel = torch.nn.Linear(3, 2)\nmodel(torch.ones(4, 3)).sum().backward()\nresult = []\n"
    assert "depthwise does not suit Linear: it has no dense convolutions but its first" in trainer.run(program, "depthwise")


LOADED = """
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

data = TensorDataset(torch.randn(12, 3, 8, 8), torch.zeros(12, 8, 8, dtype=torch.long))
model, seen = nn.Conv2d(3, 4, 3, padding=1), []
loaders = [DataLoader(data, batch_size=6), DataLoader(data, 4, True)]
loaders.append(DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 6, False)))
loaders.append(DataLoader(data, batch_sampler=loaders[-1].batch_sampler))
for loader in loaders:
    images, masks = next(iter(loader))
    model(images)
    seen.append([list(images.shape), list(masks.shape)])
result = [seen]
"""


def test_half_of_a_batch_is_made_where_it_comes_from(trainer):
    shapes = {what: trainer.run(LOADED, half=what)[0] for what in ("samples", "size")}
    assert shapes["samples"] == [[[n, 3, 8, 8], [n, 8, 8]] for n in (3, 2, 3, 3)]
    assert shapes["size"] == [[[n, 3, 4, 4], [n, 4, 4]] for n in (6, 4, 6, 6)]

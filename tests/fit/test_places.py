"""What takes samples by their number in the whole batch is not run in parts: on a GPU a part's call would read where nothing is."""

import pytest
from test_remedies import remedy, worst

PARTS = remedy("micro-batches", parts=2)

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
N, T, W = 8, 5, 6

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.of, self.out, self.table = nn.Linear(W, W), nn.Linear(W, W), nn.Parameter(torch.randn(9, W))
        self.register_buffer("edges", torch.randint(N, (2, 20)))
        self.register_buffer("kept", torch.tensor([0, 3]))

    def forward(self, x, numbers, ids):
        x = self.of(x)
CALL
        return self.out(x)

model = Net().double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
result = []
for _ in range(3):
    numbers = NUMBERS
    loss = model(torch.randn(N, T, W).double(), numbers, torch.randint(0, T, (N, T))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.detach())
result += [p.detach() for p in model.parameters()]
"""
EDGES, PER_SAMPLE = "torch.randint(N, (2, 20))", "torch.randint(1, T, (N,))"

BY_NUMBER = {
    "edges of a graph": (EDGES, "x = torch.zeros_like(x).index_add_(0, numbers[1], x[numbers[0]])"),
    "edges with loops of one's own": (EDGES, "e = torch.cat([numbers, torch.arange(len(x)).expand(2, -1)], 1); x = x + x.index_select(0, e[0])[: len(x)]"),
    "edges that the model has": (EDGES, "x = torch.zeros_like(x).index_add_(0, self.edges[1], x[self.edges[0]])"),
    "messages by gather": (EDGES, "x = x + x.gather(0, numbers[0][:, None, None].expand(-1, T, W)).sum(0)"),
    "neighbours of each": ("torch.randint(N, (N, 3))", "x = x + x[numbers].mean(1)"),
    "an order that comes with the batch": ("torch.randperm(N)", "x = x[numbers]"),
    "a partner for mixing": ("torch.randperm(N)", "x = 0.7 * x + 0.3 * x[numbers.flip(0)]"),
    "segments by their lengths": ("torch.tensor([3, 5])", "x = x + torch.segment_reduce(x, 'sum', lengths=numbers).sum(0)"),
    "places written into": (EDGES, "x = x.index_put((numbers[0],), x[:1].expand(20, T, W), accumulate=True)"),
}

BY_SAMPLE = {
    "the last word of each": (PER_SAMPLE, "x = x[torch.arange(len(x)), numbers - 1]"),
    "sorted in the call": (PER_SAMPLE, "o = numbers.argsort(descending=True); x = x[o].cumsum(1)[o.argsort()]"),
    "words that count": (PER_SAMPLE, "y = torch.zeros_like(x); m = ids != 1; y[m] = x[m]; x = y"),
    "words that count, by place": (PER_SAMPLE, "p = (ids != 1).flatten().nonzero().squeeze(1); x = torch.zeros_like(x).flatten(0, 1).index_copy(0, p, x.flatten(0, 1)[p]).view(x.shape)"),
    "a table by a buffer": (PER_SAMPLE, "x = x + self.table[self.kept].sum(0) + F.embedding(ids, self.table)"),
    "some times of each": (PER_SAMPLE, "x = x[:, self.kept].index_select(1, self.kept - self.kept)"),
    "a class of each": (PER_SAMPLE, "x = x + x.sum(1).gather(1, numbers[:, None])[:, None]"),
    "one-hot": (PER_SAMPLE, "x = x + torch.zeros_like(x).scatter_(2, ids[..., None], 1.0)"),
    "lengths as a mask": (PER_SAMPLE, "x = x * (torch.arange(T) < numbers[:, None])[..., None]"),
}


def program(numbers, call):
    return PROGRAM.replace("CALL", "        " + call).replace("NUMBERS", numbers)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("name", BY_NUMBER)
def test_what_names_samples_of_the_whole_batch_is_refused(trainer, name):
    answer = trainer.run(program(*BY_NUMBER[name]), PARTS)
    assert isinstance(answer, str) and "the remedy micro-batches does not suit Net: it picks samples by their index in the whole batch" in answer, answer


@pytest.mark.matrix(3)
@pytest.mark.parametrize("name", BY_SAMPLE)
def test_what_stays_within_a_sample_runs_in_parts(trainer, name):
    plain, parts = trainer.run(program(*BY_SAMPLE[name])), trainer.run(program(*BY_SAMPLE[name]), PARTS)
    assert not isinstance(parts, str), parts
    assert worst(plain, parts) < 1e-9

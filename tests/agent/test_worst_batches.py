"""`fit` runs the worst batches of the data first, where batches differ in size."""

import ast
import dataclasses
import types

import pytest
import torch
from plimsoll_agent.inputs import worst_batches

SCRIPT = """
import os, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

OURS = os.getpid()

class Texts(Dataset):
    def __init__(self, n): self.n, self.calls = n, 0
    def __len__(self): return self.n
    def __getitem__(self, i):
        self.calls += 1
        return torch.zeros({size}, dtype=torch.long){more}

def collate(texts): return {collate}

net = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
torch.manual_seed(1)
{before}
train = DataLoader(Texts(64), batch_size=4, shuffle=True, collate_fn=collate, num_workers={workers})
valid = DataLoader(Texts(20), batch_size=4, collate_fn=collate)
shapes, seen, outputs = [], [], []
for epoch in range(2):
    for x in train:
        optimizer.zero_grad()
        net(x.cuda()).float().mean().backward()
        optimizer.step()
        shapes.append(x.shape[1])
    with torch.no_grad():
        for x in valid:
            net(x.cuda())
            seen.append(x.shape[1])
            {gathered}
    if "{ends}":
        print([shapes, seen, len(shapes), 0], flush=True)
        {ends}
print([shapes, seen, len(shapes), train.dataset.calls if {workers} == 0 else 0])
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_the_longest_batch_comes_after_a_small_one(run, workers):
    process, printed = ran(run, "5 + i", workers)
    train, valid, n, calls = printed
    # It goes on with the longest, until memory is steady.
    assert train[0] < 5 + 63 and train[1] == 5 + 63 and train[8:16] == [5 + 63] * 8, train
    assert train[2] == train[0], "and before a small one"
    assert valid == [8, 24, 8, 20, 24] * 2, "an evaluation goes on with its own"
    assert n == 32 and calls in (0, 128), "as many batches as before, and nothing of ours was counted by the dataset"
    (text,) = {it["text"] for it in process.all("worst") if "64 samples" in it["text"]}
    assert "5 to 68" in text and "the worst of" in text


@pytest.mark.parametrize("stop, n_evaluated", [("one-validation", 3), ("until-exit", 5)])
def test_an_evaluation_that_gathers_nothing_ends_after_its_first_batches_where_nothing_is_proven(run, stop, n_evaluated):
    _, (_, valid, *_) = ran(run, "5 + i", 0, stop=stop, ends="os._exit(0)")
    assert len(valid) == n_evaluated, valid


def test_an_evaluation_that_gathers_its_outputs_has_all_its_batches(run):
    _, (_, valid, *_) = ran(run, "5 + i", 0, stop="one-validation", ends="os._exit(0)", gathered="outputs.append(torch.zeros(1 << 20, device='cuda'))")
    assert len(valid) == 5, valid


@pytest.mark.soak
def test_where_there_is_no_time_to_read_all_the_worst_of_those_that_were_read_comes_first(run):
    process, (train, *_) = ran(run, "5 + i if __import__('time').sleep(0.1) is None else 0", 0)
    assert max(train) == train[1] > train[0], train
    assert any("of 64 samples" in it["text"] and "in 64 samples" not in it["text"] for it in process.all("worst")), process.all("worst")


def test_batches_of_one_size_keep_their_order(run):
    process, (train, valid, *_) = ran(run, "7", 0)
    assert not process.all("worst") and set(train) == set(valid) == {7}


def test_names_that_differ_make_no_difference(run):
    process, (train, *_) = ran(run, "7", 0, more=", 'a' * i", collate="nn.utils.rnn.pad_sequence([x for x, _ in texts], batch_first=True)")
    assert not process.all("worst") and set(train) == {7}


def test_a_dataset_that_fails_in_the_fork_keeps_its_order(run):
    process, (train, *_) = ran(run, "5 + i if os.getpid() == OURS else [][0]", 0)
    assert len(train) == 32 and not process.all("worst")


def test_a_dataset_that_would_be_seen_outside_keeps_its_order_and_does_nothing_twice(run):
    """Files and what is printed are those of the batches that training takes."""
    process, (train, _, n, _) = ran(run, "5 + i if print('asked', i) is None and open('asked.txt', 'a').write('x') else 0", 0)
    assert len(train) == n == 32 and not process.all("worst")
    asked = sum(it.startswith("asked ") for it in process.printed.splitlines())
    assert asked == 2 * (64 + 20)


@pytest.mark.parametrize("draws", ["torch.rand(7)", "torch.manual_seed(5)"])
def test_whatever_a_script_drew_before_the_same_batches_are_looked_at(run, draws):
    """Else two runs of a script would differ in which batch is the worst, as `predict` and `fit` draw other weights."""
    sizes = "5 + (i * 37) % 101 % 61"

    def order(more=""):
        process, _ = ran(run, sizes, 0, before=more)
        return [it["text"] for it in process.all("worst")], _[0][:3]

    assert order() == order(draws)


def ran(run, size, workers, more="", collate="nn.utils.rnn.pad_sequence(texts, batch_first=True)", stop="until-exit", ends="", gathered="", before=""):
    program = SCRIPT.format(before=before, size=size, workers=workers, more=more, collate=collate, ends=ends, gathered=gathered)
    r = run(program, stop=stop, env={"PLIMSOLL_WORST_BATCHES": "1"})
    assert r.returncode == 0, r.stderr
    (process,) = [it for it in r.processes if it.all("end")]
    process.printed = r.stdout
    return process, ast.literal_eval(r.stdout.splitlines()[-1])


@pytest.mark.parametrize("path, named", [("", "samples"), ("/1", "part 2:"), ("/input_ids", "input_ids"), ("/1/boxes", "sample[1]['boxes']"), ("/1/1", "sample[1][1]")])
def test_a_part_of_a_sample_is_named_as_a_script_would_reach_it(path, named):
    sizes = {0: {path: (4, 1)}, 1: {path: (4, 81)}}
    assert worst_batches._text(sizes, 2, 40) == f"batches differ in size ({named} 4x1 to 4x81, in 2 samples): plimsoll runs the worst of 40 drawn batches first"


@dataclasses.dataclass
class Mesh:
    vertices: torch.Tensor
    edges: torch.Tensor


def test_a_batch_may_be_an_object_of_the_scripts():
    parts = torch.zeros(9, 6), torch.zeros(2, 14)
    for batch in (Mesh(*parts), types.SimpleNamespace(vertices=parts[0], edges=parts[1], name="a", made=Mesh)):
        assert dict(worst_batches._shapes(torch, batch, "", 4, has_texts=False)) == {"/vertices": (9, 6), "/edges": (2, 14)}

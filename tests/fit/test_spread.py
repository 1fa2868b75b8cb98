"""A script on several devices computes what it computes on one: processes on the CPU that talk by gloo, real numbers."""

import pytest
from test_remedies import LANGUAGE_MODEL, LOOP, worst

SPREAD = ["zero1", "fsdp2"]
WHOLE = """
result = [it.full_tensor() if hasattr(it, "full_tensor") else it for it in result]
"""


def spread(trainer, program, id, world=2, more=(), **options):
    """What each process computed; shares of weights are put together."""
    return trainer.ranks(program + WHOLE, {"id": id, "gpus": world}, *more, world=world, **options)


@pytest.mark.parametrize("id", SPREAD)
@pytest.mark.parametrize("loss", ["mean", "pairs"])
def test_the_same_losses_norms_and_weights(trainer, id, loss):
    """The last batch is of three samples, of which one process has two."""
    arguments = {"loss": loss, "clip": 0.3, "scheduler": True, "optimizer": "AdamW"}
    plain = trainer.run(LOOP, arguments=arguments)
    for one in spread(trainer, LOOP, id, arguments=arguments):
        assert worst(plain, one) < 1e-9


@pytest.mark.parametrize("id", SPREAD)
def test_sums_accumulation_and_closures_in_three_processes(trainer, id):
    """The last batch, of one sample, is for nobody alone: each process runs it."""
    for arguments in (
        {"loss": "sum", "accumulate": 3, "zero_late": True, "set_to_none": False, "samples": 25},
        {"closure": True, "optimizer": "RMSprop", "samples": 17},
    ):
        plain = trainer.run(LOOP, arguments=arguments)
        for one in spread(trainer, LOOP, id, world=3, arguments=arguments):
            assert worst(plain, one) < 1e-9


@pytest.mark.parametrize("id", SPREAD)
def test_a_loss_from_the_model_is_weighted_by_the_labels_that_count(trainer, id):
    """With weights that two layers share, and blocks that run again."""
    plain = trainer.run(LANGUAGE_MODEL)
    for more in ((), ({"id": "checkpoint"}, {"id": "set-to-none"})):
        for one in spread(trainer, LANGUAGE_MODEL, id, world=3, more=more):
            assert worst(plain, one) < 1e-6  # transformers computes the loss in float32


# What a model does beside its calls: weights outside of them, a second model behind the first, one that is frozen, a
# penalty on the gradient of a gradient, a part without gradient, parameters in a list that was made before.
ODD = """
import torch
from torch import nn
torch.manual_seed(0)
encoder, decoder = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6)), nn.Linear(6, 3)
critic = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
teacher = nn.Linear(4, 3).requires_grad_(False)
unused = nn.Linear(2, 2)
scale = nn.Parameter(torch.tensor(1.5))
for it in (encoder, decoder, critic, teacher, unused):
    it.double()
kept = [p for it in (encoder, decoder, unused) for p in it.parameters()] + [scale]
first = torch.optim.AdamW([{"params": kept[:4], "lr": 0.05}, {"params": kept[4:]}], lr=0.02, weight_decay=0.1)
second = torch.optim.SGD(critic.named_parameters(), lr=0.1, momentum=0.9)
x = torch.randn(7, 4, dtype=torch.double)
result = []
for step in range(20):
    made = decoder(encoder(x)) * scale.double()
    penalty = torch.autograd.grad(critic(made).sum(), made, create_graph=True)[0].pow(2).sum(1).mean()
    loss = (made - teacher(x)).pow(2).mean() + critic(made).mean() + penalty
    for optimizer in (first, second):
        optimizer.zero_grad()
    loss.backward()
    result.append(nn.utils.clip_grad_norm_(kept, 0.7).detach())
    first.step()
    second.step()
    result.append(loss.detach())
result += [p.detach() for it in (encoder, decoder, critic, unused) for p in it.parameters()] + [scale.detach()]
"""


@pytest.mark.parametrize("id", SPREAD)
def test_a_program_that_is_more_than_one_model(trainer, id):
    plain = trainer.run(ODD)
    for one in spread(trainer, ODD, id):
        assert worst(plain, one) < 1e-9


RESUMES = """
import os, torch
folder = arguments["folder"]
def made():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 2)).double()
    return model, torch.optim.Adam(model.parameters(), lr=0.03)
model, optimizer = made()
result = []
x = torch.randn(6, 5, dtype=torch.double)
for step in range(10):
    if step == 5:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder + "/kept.pt")
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        model, optimizer = made()
        kept = torch.load(folder + "/kept.pt", weights_only=True)
        assert all(type(it) is torch.Tensor for it in kept["model"].values())
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    result.append(loss.detach())
result += [p.detach() for p in model.parameters()]
"""


@pytest.mark.parametrize("id", SPREAD)
def test_what_is_saved_is_whole_and_can_be_gone_on_from(trainer, tmp_path, id):
    plain = trainer.run(RESUMES, arguments={"folder": str(tmp_path)})
    for one in spread(trainer, RESUMES, id, arguments={"folder": str(tmp_path)}):
        assert worst(plain, one) < 1e-9
    import torch

    kept = torch.load(tmp_path / "kept.pt", weights_only=True)
    assert sorted(kept["optimizer"]["state"]) == [0, 1, 2, 3] and kept["model"]["0.weight"].shape == (7, 5)


@pytest.mark.parametrize("id", SPREAD)
def test_processes_that_draw_other_batches_are_refused(trainer, id):
    program = """
import os, torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator()
generator.seed()
for _ in range(3):
    model(torch.randn(6, 4, generator=generator)).sum().backward()
    optimizer.step()
result = []
"""
    for answer in spread(trainer, program, id):
        assert "its processes have different batches" in answer


@pytest.mark.parametrize("id", SPREAD)
def test_weights_of_numpys_numbers_become_the_same(trainer, id):
    program = """
import os, torch
model = torch.nn.Linear(4, 2)
with torch.no_grad():
    model.weight.copy_(torch.frombuffer(os.urandom(8), dtype=torch.uint8).float().reshape(2, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(6, 4)).sum().backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
"""
    first, second = spread(trainer, program, id)
    assert worst(first, second) == 0


@pytest.mark.parametrize("id", SPREAD)
def test_each_keeps_a_share_of_the_state(trainer, id):
    program = """
import torch
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(4, 8)).sum().backward()
optimizer.step()
sizes = [getattr(v, "to_local", lambda v=v: v)().numel() for s in optimizer.state.values() for v in s.values() if v.dim()]
result = [torch.tensor(sum(sizes))]
"""
    whole = int(trainer.run(program)[0])
    shares = [int(it[0]) for it in spread(trainer, program, id)]
    assert sum(shares) == whole and max(shares) <= 0.6 * whole


def test_dropout_is_another_in_each_process(trainer):
    program = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(1, 1)
        self.drop = torch.nn.Dropout(0.5)
    def forward(self, x):
        return self.drop(torch.ones_like(x)) + 0 * self.a(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
out = model(torch.ones(64, 1))
result = [out.detach(), torch.rand(3)]
"""
    first, second = spread(trainer, program, "zero1")
    assert worst(first, second) == 0 and 8 < int((first[0] > 0).sum()) < 56
    assert not bool((first[0][:32] == first[0][32:]).all())


def test_a_gradient_that_would_be_of_a_share_only_is_refused(trainer):
    program = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.autograd.grad(model(torch.ones(6, 4)).sum(), model.parameters())
result = []
"""
    assert "it calls torch.autograd.grad for weights" in spread(trainer, program, "zero1")[0]

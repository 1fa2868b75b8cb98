"""A script on several devices computes what it computes on one: processes on the CPU that talk by gloo, real numbers."""

import json
import signal

import pytest
from harness import COLD, PYTHON
from test_remedies import LANGUAGE_MODEL, LOOP, worst

SPREAD = ["zero1", "fsdp2"]
WHOLE = """
result = [it.full_tensor() if hasattr(it, "full_tensor") else it for it in result]
"""


def spread(trainer, program, id, world=2, more=(), **options):
    """What each process computed; shares of weights are put together."""
    return trainer.ranks(program + WHOLE, {"id": id, "gpus": world}, *more, world=world, **options)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("id", SPREAD)
@pytest.mark.parametrize("loss", ["mean", "pairs"])
def test_the_same_losses_norms_and_weights(trainer, id, loss):
    """The last batch is of three samples, of which one process has two."""
    arguments = {"loss": loss, "clip": 0.3, "scheduler": True, "optimizer": "AdamW"}
    plain = trainer.run(LOOP, arguments=arguments)
    for one in spread(trainer, LOOP, id, arguments=arguments):
        assert worst(plain, one) < 1e-9


@pytest.mark.matrix(1)
@pytest.mark.soak
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


@pytest.mark.matrix(1)
@pytest.mark.soak
@pytest.mark.parametrize("id", SPREAD)
def test_a_loss_from_the_model_is_weighted_by_the_labels_that_count(trainer, id):
    """With weights that two layers share, and blocks that run again."""
    plain = trainer.run(LANGUAGE_MODEL)
    for more in ((), ({"id": "checkpoint"}, {"id": "set-to-none"})):
        for one in spread(trainer, LANGUAGE_MODEL, id, world=3, more=more):
            assert worst(plain, one) < 1e-6  # transformers computes the loss in float32


RECORD = """
import dataclasses
import torch
from torch import nn
torch.manual_seed(0)

@dataclasses.dataclass(frozen=True)
class Output:
    logits: torch.Tensor
    loss: torch.Tensor = None
    name: str = "mine"

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    def forward(self, x, y=None):
        logits = self.layers(x)
        return Output(logits, None if y is None else nn.functional.cross_entropy(logits, y))

model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
result = []
for step in range(6):
    x, y = torch.randn(7, 4, dtype=torch.double), torch.randint(3, (7,))
    out = model(x, y) if arguments["inside"] else model(x)
    assert out.logits.shape == (7, 3) and out.name == "mine", out
    loss = out.loss if arguments["inside"] else nn.functional.cross_entropy(out.logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.detach())
result += [p.detach().clone() for p in model.parameters()]
"""


@pytest.mark.matrix(1)
@pytest.mark.parametrize("inside", [True, False])
def test_an_output_that_is_a_dataclass(trainer, inside):
    """With the loss in it or without: its fields are put together, on one device and on several."""
    arguments = {"inside": inside}
    plain = trainer.run(RECORD, arguments=arguments)
    assert worst(plain, trainer.run(RECORD, {"id": "micro-batches", "parts": 3}, arguments=arguments)) < 1e-12
    for id in SPREAD:
        for one in spread(trainer, RECORD, id, arguments=arguments):
            assert worst(plain, one) < 1e-12


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
    penalty = 0
    if arguments["penalty"]:
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


@pytest.mark.matrix(1)
@pytest.mark.parametrize("id", SPREAD)
def test_a_program_that_is_more_than_one_model(trainer, id):
    arguments = {"penalty": id == "zero1"}  # FSDP bears no gradient of a gradient, and says so.
    plain = trainer.run(ODD, arguments=arguments)
    for one in spread(trainer, ODD, id, arguments=arguments):
        assert worst(plain, one) < 1e-6  # One weight is in float32.


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


@pytest.mark.matrix(1)
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
        assert "its ranks have different batches" in answer


@pytest.mark.matrix(1)
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


@pytest.mark.matrix(1)
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


@pytest.mark.matrix(1)
@pytest.mark.soak
@pytest.mark.parametrize("id", SPREAD)
def test_shares_in_parts(trainer, id):
    """Each process runs its share in parts, all in equally many; in evaluation mode too, whose outputs are there whole."""
    for program, arguments in (
        (LOOP, {"clip": 0.3, "optimizer": "AdamW", "evaluates": "between"}),
        (LANGUAGE_MODEL, {"evaluates": "between"}),
    ):
        plain = trainer.run(program, arguments=arguments)
        for parts in (2, 3):  # Of the last batch one process has two samples and the other one.
            more = ({"id": "micro-batches", "parts": parts}, {"id": "checkpoint"})
            for one in spread(trainer, program, id, more=more, arguments=arguments):
                assert worst(plain, one) < 1e-6, program


@pytest.mark.parametrize(
    "id, other",
    [("zero1", "optimizer-in-backward"), ("zero1", "fsdp2"), ("zero1", "parameter-offload"), ("fsdp2", "optimizer-8bit")],
)
def test_what_would_take_a_share_for_the_whole_is_refused(trainer, id, other):
    answer = trainer.run("result = []", {"id": id, "gpus": 2}, {"id": other})
    assert "these remedies cannot be in one plan" in answer and other in answer


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


FAILS = """
import os, sys, torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rank = torch.distributed.get_rank()
assert "RANK" not in os.environ and "WORLD_SIZE" not in os.environ
print("hello", torch.rand(()).item())
for step in range(3):
    if step == 2 and rank == int(sys.argv[1]):
        sys.exit(7)
    model(torch.randn(6, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.soak
@pytest.mark.parametrize("who", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_run_starts_a_process_for_each_and_ends_as_they_do(plimsoll, who):
    """One that fails ends all; nobody says twice what one says."""
    plimsoll.script(FAILS)
    (plimsoll.folder / "plan.toml").write_text('version = 1\n[[remedy]]\nid = "zero1"\ngpus = 2\n')
    # Which of two ends first is seen by when its process ends: each has to be one of its own.
    ran = plimsoll.run("run", "--no-gpu", "--plan", "plan.toml", "--", COLD, "train.py", who)
    assert ran.code == (7 if who == 1 else 0), ran
    assert ran.stdout.count("hello") == 1, ran
    plimsoll.assert_nothing_left()


@pytest.mark.soak
def test_run_starts_no_launcher_once_for_each(plimsoll):
    (plimsoll.folder / "plan.toml").write_text('version = 1\n[[remedy]]\nid = "fsdp2"\ngpus = 2\n')
    for words in (["sh", "-c", "exit 3"], [PYTHON, "-m", "torch.distributed.run", "train.py"]):
        plimsoll.run("run", "--no-gpu", "--plan", "plan.toml", "--", *words).assert_sentence("remove the launcher from the command")


def test_a_signal_reaches_each_of_them(plimsoll):
    plimsoll.script("""
import os, signal, time, torch
torch.optim.SGD(torch.nn.Linear(4, 2).parameters(), lr=0.1)
rank = torch.distributed.get_rank()
def asked(*_):
    open("asked-%d" % rank, "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, asked)
torch.distributed.barrier()
print("ready", flush=True)
time.sleep(60)
""")
    (plimsoll.folder / "plan.toml").write_text('version = 1\n[[remedy]]\nid = "zero1"\ngpus = 2\n')
    process = plimsoll.start("run", "--no-gpu", "--plan", "plan.toml", "--", PYTHON, "train.py")
    assert "ready\n" in iter(process.stdout.readline, "")  # Gloo of torch 2.8 says something, too.
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert sorted(it.name for it in plimsoll.folder.glob("asked-*")) == ["asked-0", "asked-1"]


DEEP = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2048, 4096), nn.Linear(4096, 2048)
    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))
with torch.device("cuda"):
    model = nn.Sequential(*(Block() for _ in range(20)))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    optimizer.zero_grad()
    model(torch.randn(4096, 2048, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.soak
def test_a_plan_for_two_devices_is_found_and_is_what_each_takes(plimsoll):
    """The same prediction from the search, and from the line that it proposes, on the first device and the second."""
    plimsoll.script(DEEP)
    told = plimsoll.folder / "fit.json"
    options = ["--gpu", "rtx4090", "--gpus", "2", "--budget", "6GiB", "--allow", "fsdp2", "--json", told]
    ran = plimsoll.run("fit", *options, "--", PYTHON, "train.py", timeout=900)
    assert ran.code == 0, ran
    answer = json.loads(told.read_text())
    plan = answer["plans"][0]
    assert plan["remedies"] == ["fsdp2 (2 gpus)"] and plan["numbers"] == "same"
    assert answer["as_it_is"]["needs_bytes"] > 6 << 30 >= plan["needs_bytes"]
    from harness import binary

    line = (binary(), "run", "--plan", "plan.toml", "--", PYTHON, "train.py")
    for rank in "01":
        report = plimsoll.predict(*line, options=("--gpu", "rtx4090", "--rank", rank)).report
        assert report["peak_reserved_bytes"] <= plan["peak_reserved_bytes"]
        assert report["peak_reserved_bytes"] == pytest.approx(plan["peak_reserved_bytes"], rel=0.01)
        assert "imagined-ranks" in {it["code"] for it in report["notes"]}

"""Models larger than the host: weights without memory, and the same numbers on the device."""

import pytest
from harness import PYTHON

# What people do with weights on the host before, between and after training.
PROGRAM = """
import copy, io, os, torch; torch.manual_seed(0)
from torch import nn
def say(what, *more):
    print("SAYS", what, torch.cuda.memory_allocated(), torch.cuda.max_memory_reserved(), *more)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4000, 512)
        self.body = nn.Sequential(*[nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)])
        self.scale = nn.Parameter(torch.ones(512))
        nn.init.trunc_normal_(self.embed.weight, std=0.02)
        for layer in self.body:
            if isinstance(layer, nn.Linear):
                layer.weight.data.normal_(0, 0.02).mul_(0.5)
                nn.init.orthogonal_(layer.weight) if os.environ.get("ORTHOGONAL") else nn.init.xavier_uniform_(layer.weight)
    def forward(self, x):
        return self.body(self.embed(x) * self.scale) @ self.embed.weight.t()
net = Net()
drawn = lambda: torch.randint(1 << 40, (3,)).tolist() + [torch.rand(()).item()]
say("drawn after", drawn())
own = torch.Generator().manual_seed(4)
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
    like = torch.empty(700, 801, dtype=dtype)
    for fill in (lambda: like.normal_(), lambda: like.uniform_(-1, 1), lambda: torch.randn(801, 700, dtype=dtype), lambda: torch.rand(801, 700, dtype=dtype),
                 lambda: like.normal_(generator=own), lambda: torch.randn_like(like), lambda: like[:333].normal_(), lambda: torch.normal(0.0, 1.0, (801, 701), dtype=dtype)):
        fill()
        say("drawn after", dtype, drawn(), torch.rand((), generator=own).item())
say("drawn after", torch.randn(801, 701, dtype=torch.complex64).shape, drawn())
frozen = copy.deepcopy(net).half().eval()
say("frozen", frozen.embed.weight.dtype, tuple(frozen.embed.weight.stride()), frozen.body[0].weight.t().contiguous().shape)
frozen.cuda()
say("half")
state = {name: it.clone() for name, it in net.state_dict().items()}
file = io.BytesIO()
torch.save(state, "weights.pt")
net.load_state_dict(torch.load("weights.pt"))
net.embed.weight.data = torch.cat([net.embed.weight.data, torch.zeros(100, 512)])
say("grown", tuple(net.embed.weight.shape))
device_half = torch.empty(4100, 512, dtype=torch.bfloat16, device="cuda")
device_half.copy_(net.embed.weight.data)
transposed = net.body[0].weight.data.t().to("cuda", torch.float16)
say("converted on the way", transposed.dtype, transposed.stride())
pinned = net.body[0].weight.data.pin_memory()
say("pinned", pinned.is_pinned(), pinned.to("cuda", non_blocking=True).shape)
norm = net.embed.weight.norm()
say("norm", norm.shape, norm.dtype, float(net.scale.sum()))
net.cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(3):
    loss = net(torch.randint(4000, (8, 64), device="cuda")).logsumexp(-1).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    say("step", step)
host = {name: it.cpu() for name, it in net.state_dict().items()}
say("back", {it.device.type for it in host.values()}, host["embed.weight"].shape)
whole = torch.arange(1_000_000)
assert whole.sum().item() == 499999500000, "whole numbers stay real"
"""


def says(ran):
    assert ran.code == 0, ran
    return [line for line in ran.stdout.splitlines() if line.startswith("SAYS")]


@pytest.mark.parametrize("orthogonal", ["", "1"])
def test_the_device_sees_no_difference(plimsoll, orthogonal):
    plimsoll.script(PROGRAM)
    environment = plimsoll.environment(ORTHOGONAL=orthogonal)
    sizes, allocated = [], []
    for when in ("off", "on"):
        options = ("--gpu", "rtx4090", "--until-exit", f"--ghost-weights={when}")
        ran = plimsoll.predict(PYTHON, "train.py", options=options, environment=environment)
        sizes.append(says(ran))
        allocated.append(ran.report["peak_allocated_bytes"])
        codes = {it["code"] for it in ran.report["notes"]}
        assert ("ghost-weights" in codes) == (when == "on") and "agent-failed" not in codes, ran.report["notes"]
    assert sizes[0] == sizes[1]
    assert allocated[0] == allocated[1]


SERVED = """
import torch
from torch.nn import functional as F
net = torch.nn.Conv2d(3, 16, 3).eval().requires_grad_(False)
big = torch.nn.Parameter(torch.zeros(4_000_000), requires_grad=False)  # With which the model is large.
net.cuda()
for context in (torch.inference_mode, torch.no_grad):
    for precision in (torch.bfloat16, torch.float16):
        with context(), torch.autocast("cuda", precision):
            y = net(torch.rand(2, 3, 64, 64, device="cuda"))
            larger = F.interpolate(y, size=(200, 200), mode="bilinear", align_corners=False)
            products = torch.einsum("bchw,bdhw->bcd", y.float(), y.float())
            with torch.autocast("cuda", enabled=False):
                plain = torch.einsum("bchw,bdhw->bcd", y.float(), y.float())
        print("SAYS", context.__name__, y.dtype, larger.dtype, products.dtype, plain.dtype, torch.cuda.memory_allocated(), flush=True)
    outside = torch.einsum("bchw,bdhw->bcd", y.float(), y.float())
    print("SAYS", outside.dtype, torch.cuda.max_memory_allocated(), flush=True)
"""


def test_autocast_chooses_the_same_types_under_inference_mode(plimsoll):
    """There a mode catches whole operations, below autocast, which chooses for those that they consist of."""
    plimsoll.script(SERVED)
    seen = []
    for when in ("off", "on"):
        ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx4090", "--until-exit", f"--ghost-weights={when}"))
        seen.append((says(ran), ran.report["peak_allocated_bytes"], ran.report["peak_reserved_bytes"]))
    assert "torch.float32" in seen[0][0][0] and "torch.bfloat16" in seen[0][0][0]
    assert seen[0] == seen[1]


ATTENDS = """
import sys, torch
from torch import nn
net = nn.Sequential(nn.Embedding(30_000, 256), nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, batch_first=True), 3), nn.Linear(256, 30_000))
calls = lambda: torch.cuda.memory_stats()["allocation.all.allocated"]
net = net.cuda()
x = torch.randint(30_000, (4, 128), device="cuda")
if len(sys.argv) > 1:
    net.eval().requires_grad_(False)
for _ in range(3):
    loss = net(x).square().mean()
    print("SAYS", calls(), torch.cuda.max_memory_allocated(), flush=True)
    if len(sys.argv) == 1:
        loss.backward()
later = nn.Linear(4096, 4096)
print("SAYS", later.weight.device, later(torch.ones(1, 4096)).shape, flush=True)
"""


@pytest.mark.parametrize("words", [(), ("serves",)], ids=["trains", "serves"])
def test_a_call_of_a_model_on_the_device_allocates_as_without_ghosts(plimsoll, words):
    """While there is a dispatch mode, `linear` adds its bias out of place: attention took a block more in each layer."""
    plimsoll.script(ATTENDS)
    seen = []
    for when in ("off", "on"):
        ran = plimsoll.predict(PYTHON, "train.py", *words, options=("--gpu", "rtx4090", "--until-exit", f"--ghost-weights={when}"))
        seen.append((says(ran), ran.report["peak_allocated_bytes"], ran.report["peak_reserved_bytes"]))
    assert seen[0] == seen[1]


READS = """
import torch
from torch.nn import functional as F
head = torch.nn.Linear(256, 40).cuda()
x, letters = torch.randn(50, 4, 256, device="cuda"), torch.randint(1, 40, (4, 9), device="cuda")
loss = F.ctc_loss(head(x).log_softmax(-1), letters, torch.tensor([50, 48, 40, 30]), torch.tensor([9, 8, 7, 6]), zero_infinity=True)
print("SAYS", torch.cuda.memory_stats()["allocation.all.allocated"], flush=True)
loss.backward()
later = torch.nn.Linear(4096, 4096)
print("SAYS", later.weight.device, flush=True)
"""


def test_lengths_on_the_host_stay_there(plimsoll):
    """While there is a dispatch mode, `ctc_loss` wants them on the device."""
    plimsoll.script(READS)
    seen = []
    for when in ("off", "on"):
        ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx4090", "--until-exit", f"--ghost-weights={when}"))
        seen.append((says(ran), ran.report["peak_allocated_bytes"], ran.report["peak_reserved_bytes"]))
    assert seen[0] == seen[1]


OWN_EMPTY = """
import torch
made = torch.empty
torch.empty = lambda *size, **options: made(*size, **{"device": "cuda", **options})
model = torch.nn.Linear(1024, 1024, device="cpu")
kept = torch.zeros(1024, 1024)
torch.empty = made
print("SAYS", kept.dtype, kept.device, flush=True)
model.cuda()(torch.zeros(8, 1024, device="cuda")).sum().backward()
"""


def test_who_replaces_empty_for_a_while_does_not_meet_placeholders(plimsoll):
    """`deepspeed.zero.Init` makes tensors on the device."""
    plimsoll.script(OWN_EMPTY)
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "rtx4090", "--until-exit", "--ghost-weights"))
    codes = {it["code"] for it in ran.report["notes"]}
    assert "ghost-weights" in codes and "agent-failed" not in codes, [it for it in ran.report["notes"] if it["code"] == "agent-failed"]
    assert says(ran) == ["SAYS torch.float32 cpu"]


def test_a_model_larger_than_its_share_of_the_host_becomes_a_ghost_by_itself(plimsoll):
    """32 GB of weights, converted twice on the CPU."""
    plimsoll.script(
        """
import resource, torch
from torch import nn
model = nn.Sequential(*[nn.Linear(20_000, 20_000) for _ in range(20)]).double().to(torch.bfloat16)
model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(4, 20_000, device="cuda", dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("SAYS", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20)
"""
    )
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h200", "--until-exit"))
    gib = int(says(ran)[0].split()[1])
    assert gib < 8, ran
    assert "ghost-weights" in {it["code"] for it in ran.report["notes"]}, ran.report["notes"]
    assert ran.report["peak_allocated_bytes"] > 32e9


def test_an_optimizer_on_the_host_costs_no_memory_there_either(plimsoll):
    """8 GB of weights with 16 GB of states, in the optimizer's own loops."""
    plimsoll.script(
        """
import resource, torch
from torch import nn
model = nn.Sequential(*[nn.Linear(10_000, 10_000) for _ in range(20)])
optimizer = torch.optim.AdamW(model.parameters())
weights = [it.detach().cuda() for it in model.parameters()]
for _ in range(2):
    for parameter, weight in zip(model.parameters(), weights):
        parameter.grad = torch.zeros_like(weight).cpu()
    optimizer.step()
    for parameter, weight in zip(model.parameters(), weights):
        weight.copy_(parameter.detach(), non_blocking=True)
print("SAYS", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20)
"""
    )
    options = ("--gpu", "h200", "--until-exit", "--ghost-weights")
    ran = plimsoll.predict(PYTHON, "train.py", options=options)
    assert int(says(ran)[0].split()[1]) < 4, ran


def test_what_is_offloaded_costs_no_memory_on_the_host(plimsoll):
    """As DeepSpeed does it: buffers that are pinned, and an optimizer that has its parameters during its steps only. 2 GB of weights, 6 GB of states."""
    plimsoll.script(
        """
import resource, torch
from torch import nn
layer = nn.Linear(64, 64, device="cuda")
offloaded = [torch.empty(10_000, 10_000).pin_memory() for _ in range(5)]
optimizer = torch.optim.AdamW([nn.Parameter(it) for it in offloaded])
parts = optimizer.param_groups[0]["params"]
optimizer.param_groups[0]["params"] = []
for _ in range(2):
    layer(torch.ones(4, 64, device="cuda")).sum().backward()
    optimizer.param_groups[0]["params"] = parts
    for part in parts:
        part.grad = torch.zeros(10_000, 10_000, device="cuda").cpu()
    optimizer.step()
    optimizer.param_groups[0]["params"] = []
print("SAYS", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20)
"""
    )
    ran = plimsoll.predict(PYTHON, "train.py", options=("--gpu", "h200", "--until-exit"))
    assert int(says(ran)[0].split()[1]) < 4, ran
    assert "ghost-weights" in {it["code"] for it in ran.report["notes"]}, ran.report["notes"]

"""What the meter counts in its step, and that counting changes nothing else."""

import pytest

METERED = {"PLIMSOLL_METER": "1"}

LOOP = """
import torch, torch.nn as nn
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(3):
    opt.zero_grad()
    (net(torch.randn(32 + i, 64, device="cuda")).sum() / 2).backward()
    opt.step()
"""


def inputs_by_step(process):
    """The bytes of the inputs that were seen in each step; the lines come in order of their places."""
    ends = [mark["allocs"][0] for mark in process.steps]
    res = [[] for _ in ends]
    for line in process.all("tensors"):
        sizes = [it["bytes"] for it in line["entries"] if it["role"] == "input"]
        if sizes:
            res[sum(end <= line["allocs"][0] for end in ends)] += sizes
    return res


def test_inputs_are_seen_in_the_step_that_is_metered(run):
    """The mode that counts is ours, so tensors under it are the program's own and have addresses."""
    p = run(LOOP, stop="until-exit", env=METERED).process
    assert inputs_by_step(p) == [[(32 + i) * 64 * 4] for i in range(3)]
    assert p.notes == []


def test_the_second_step_is_counted_and_no_other(run):
    p = run(LOOP, stop="until-exit", env=METERED).process
    products = [it for it in p.one("work")["ops"] if it["op"].startswith("matmul")]
    # 33 rows forward through both layers, their weights' gradients, and the gradient of what the second was given.
    assert sum(it["flops"] * it["count"] for it in products) == 2 * 33 * (2 * 64 * 128 + 3 * 128 * 10)


ATTENTION = """
import sys, torch, torch.nn.functional as F
heads = int(sys.argv[1])
q = torch.nn.Parameter(torch.zeros(2, 8, 128, 64, device="cuda", dtype=getattr(torch, sys.argv[2])))
kv = torch.nn.Parameter(torch.zeros(2, heads, 128, 64, device="cuda", dtype=q.dtype))
opt = torch.optim.SGD([q, kv], 0.1)
for _ in range(3):
    k = kv if sys.argv[3] == "grouped" else kv.repeat_interleave(8 // heads, 1)
    F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True).sum().backward()
    opt.step(); opt.zero_grad()
print("done")
"""


def arithmetic(ran):
    assert (ran.stdout, ran.process.notes) == ("done\n", []), ran.stderr
    return sum(it["flops"] * it["count"] for it in ran.process.one("work")["ops"] if it["op"] == "attention")


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_of_grouped_queries_computes_as_much_as_of_single_ones(run, heads):
    """Two products forward and five backward, whoever shares keys."""
    grouped, single = (
        arithmetic(run(ATTENTION, str(heads), "bfloat16", kind, stop="until-exit", env=METERED)) for kind in ("grouped", "single")
    )
    assert grouped == single == 7 * 2 * (2 * 8) * 128 * 128 * 64


def test_what_cannot_be_counted_does_not_reach_the_program(run):
    r = run(
        """
import torch
from torch.utils.flop_counter import register_flop_formula

@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@register_flop_formula(torch.ops.mine.twice)
def formula(shape, out_shape=None, **more):
    raise AssertionError("of another shape")

weight = torch.nn.Parameter(torch.zeros(64, device="cuda"))
opt = torch.optim.SGD([weight], 0.1)
for _ in range(3):
    weight.grad = twice(weight.detach())
    opt.step()
print("done")
""",
        stop="until-exit",
        env=METERED,
    )
    assert (r.returncode, r.stdout) == (0, "done\n"), r.stderr
    p = r.process
    assert "agent-failed" in p.notes
    assert [it["text"] for it in p.all("note") if "of another shape" in it["text"]]
    assert p.one("work")["ops"]


BLOCKS = """
import sys, torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint
kind, how = sys.argv[1:]
net = {
    "layers": lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)),
    "depthwise": lambda: nn.Conv1d(32, 32, 5, padding=2, groups=32),
    "norm": lambda: nn.GroupNorm(2, 64),
}[kind]().cuda()
shape = {"layers": (8, 64), "depthwise": (8, 32, 100), "norm": (8, 64, 50)}[kind]
opt = torch.optim.SGD(net.parameters(), 0.1, foreach=how == "foreach")
for _ in range(3):
    opt.zero_grad()
    x = torch.randn(*shape, device="cuda")
    (checkpoint(net, x, use_reentrant=False) if how == "checkpoint" else net(x)).sum().backward()
    opt.step()
print("done")
"""


def counted(run, kind, how):
    ran = run(BLOCKS, kind, how, stop="until-exit", env=METERED)
    assert (ran.stdout, ran.process.notes) == ("done\n", []), ran.stderr
    return ran.process.one("work")["ops"]


def how_many(ops, op):
    return sum(it["count"] for it in ops if it["op"] == op)


def test_functions_around_kept_tensors_are_counted(run):
    assert how_many(counted(run, "layers", "plain"), "hook") == 0
    # Kept by the first layer, by the activation and by the last layer, and each is fetched once.
    ops = counted(run, "layers", "checkpoint")
    assert how_many(ops, "hook") >= 6
    assert how_many(ops, "around") == 2, "the part that is checkpointed, forward and again in backward"


def test_two_tensors_in_a_list_are_a_call_more(run):
    plain, listed = (how_many(counted(run, "layers", how), "look") for how in ("plain", "foreach"))
    assert listed - plain == 4, "four parameters, each with its gradient"


def test_a_depthwise_convolution_computes_each_channel_by_itself(run):
    ops = [it for it in counted(run, "depthwise", "plain") if it["op"] == "walk"]
    # Forward, and backward to its weights; six products while another kernel walks past one number.
    assert sum(it["flops"] * it["count"] for it in ops) == 2 * (2 * 8 * 32 * 100 * 5 // 6)


COMPILED = """
import sys
import torch
from torch import nn
model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)) for _ in range(3))).cuda()
run = torch.compile(model) if sys.argv[1] == "compiled" else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    run(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_what_is_compiled_is_counted_as_it_was_written(run):
    """Nearly all of it would be missing: what Inductor makes passes nobody who counts."""
    written, compiled = (run(COMPILED, it, stop="until-exit", env=METERED).process.one("work")["ops"] for it in ("written", "compiled"))
    assert compiled == written


PACKED = """
import sys, torch
from torch.nn.utils.rnn import pack_padded_sequence
net = torch.nn.LSTM(16, 32, num_layers=2, batch_first=True).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
lengths = torch.tensor([50, 40, 10])
for _ in range(3):
    x = torch.randn(3, 50, 16, device="cuda")
    net(pack_padded_sequence(x, lengths, batch_first=True) if sys.argv[1] == "packed" else x)[1][0].sum().backward()
    opt.step(); opt.zero_grad()
"""


def test_packed_sequences_have_as_many_time_steps_as_the_longest(run):
    counted = {}
    for how in ("packed", "padded"):
        ops = [it for it in run(PACKED, how, stop="until-exit", env=METERED).process.one("work")["ops"] if it["op"] == "recurrent"]
        counted[how] = sum(it["count"] for it in ops), sum(it["count"] * it["flops"] for it in ops)
    assert counted["packed"][0] == counted["padded"][0] == 2 * 2 * 50, "two layers, forward and backward"
    assert counted["packed"][1] == pytest.approx(counted["padded"][1] * (50 + 40 + 10) / 150, rel=1e-3)


CONVOLUTIONS = """
import sys, torch, torch.nn as nn
net = nn.ModuleDict({
    "plain": nn.Conv2d(16, 64, 3, padding=1), "grouped": nn.Conv2d(64, 64, 3, padding=1, groups=4), "up": nn.ConvTranspose2d(64, 48, 2, stride=2),
}).cuda()
last = {"memory_format": torch.channels_last} if sys.argv[1] == "last" else {}
net.to(**last)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    x = net["grouped"](net["plain"](torch.zeros(2, 16, 10, 10, device="cuda").to(**last)))
    net["up"](x).sum().backward()
    opt.step(); opt.zero_grad()
"""


def test_convolutions_with_channels_in_front_move_their_tensors_once_more(run):
    ran = {how: run(CONVOLUTIONS, how, stop="until-exit", env=METERED).process.one("work")["ops"] for how in ("front", "last")}
    places = 2 * 10 * 10
    once = 16 * 64 * 9, 64 * 16 * 9, 64 * 48 * 4
    for ops in ran.values():
        flops = sum(it["count"] * it["flops"] for it in ops if it["op"] == "convolution")
        # Forward, and backward to weights and input; the first one has no gradient of its input.
        assert flops == 2 * places * (2 * once[0] + 3 * once[1] + 3 * once[2])
    moved = {how: sum(it["count"] * it["bytes"] for it in ops if it["op"] == "memory") for how, ops in ran.items()}
    assert moved["front"] > 1.5 * moved["last"]


WALKS = """
import torch, torch.nn.functional as F
h = torch.nn.Parameter(torch.zeros(100, 8, device="cuda"))
edges = torch.randint(0, 100, (5000,)).cuda()
opt = torch.optim.SGD([h], 0.1)
for _ in range(3):
    with torch.no_grad():
        h[edges]; h.index_select(0, edges); F.interpolate(h.view(1, 1, 100, 8), scale_factor=2, mode="bilinear")
    h.sum().backward()
    opt.step(); opt.zero_grad()
"""


def test_kernels_that_walk_through_numbers_count_them(run):
    ops = run(WALKS, stop="until-exit", env=METERED).process.one("work")["ops"]
    assert sorted(it["flops"] * it["count"] for it in ops if it["op"] == "walk") == [4 * 800, 2 * 5000 * 8]


CTC = """
import sys, torch, torch.nn.functional as F
weights = torch.nn.Parameter(torch.zeros(40, 32, device="cuda"))
opt = torch.optim.SGD([weights], 0.1)
said, frames, symbols = torch.ones(8, 10, dtype=torch.long), torch.full((8,), 64), torch.full((8,), 10)
if sys.argv[1] == "device":
    said, frames, symbols = said.cuda(), frames.cuda(), symbols.cuda()
for _ in range(3):
    chosen = (torch.randn(64, 8, 40, device="cuda") @ weights).log_softmax(-1)
    F.ctc_loss(chosen, said.cuda(), frames, symbols, reduction=sys.argv[2], zero_infinity=True).mean().backward()
    opt.step(); opt.zero_grad()
print("done")
"""


@pytest.mark.parametrize(("lengths", "reduction"), [("host", "mean"), ("device", "none")])
def test_a_loss_that_takes_lengths_from_the_host_is_counted(run, lengths, reduction):
    """PyTorch hands the lengths on as they are where somebody listens, and divides a mean by them."""
    ran = run(CTC, lengths, reduction, stop="until-exit", env=METERED)
    assert (ran.stdout, ran.process.notes) == ("done\n", []), ran.stderr
    assert any(it["op"] == "matmul" for it in ran.process.one("work")["ops"])

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


def test_tensors_in_lists_are_counted(run):
    assert how_many(counted(run, "layers", "plain"), "listed") == 0
    assert how_many(counted(run, "layers", "foreach"), "listed") == 2 * 4, "four parameters, each with its gradient"


def test_a_depthwise_convolution_computes_each_channel_by_itself(run):
    ops = [it for it in counted(run, "depthwise", "plain") if it["op"] == "depthwise-flat"]
    # Forward, and backward to its weights.
    assert sum(it["flops"] * it["count"] for it in ops) == 2 * 2 * 8 * 32 * 100 * 5


def test_a_norm_of_few_groups_has_a_block_of_threads_for_each(run):
    ops = [it for it in counted(run, "norm", "plain") if it["op"] == "few-blocks"]
    assert how_many(ops, "few-blocks") == 2, "forward and backward"
    # Backward reads as much, but where the gradient is one number, expanded, which 2.15 hands down.
    forward = max(it["bytes"] for it in ops)
    assert 2 * 32 * 50 * 4 <= forward < 3 * 32 * 50 * 4, "what one group reads and writes"


LOADED = """
import sys, time, torch, torch.nn as nn
from torch.utils.data import DataLoader
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, i):
        end = time.thread_time() + 0.005
        while time.thread_time() < end: pass
        return torch.ones(4)
net = nn.Linear(4, 4).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for x in DataLoader(Slow(), 4, num_workers=int(sys.argv[2])):
    loss = net(x.cuda()).sum()
    opt.zero_grad(); loss.backward(); opt.step()
    if sys.argv[1] == "reads": loss.item()
"""


@pytest.mark.parametrize("does, workers, op", [("reads", 0, "data-alone"), ("goes on", 0, "data"), ("goes on", 1, None)])
def test_what_making_a_batch_takes_of_the_processor_is_timed_where_the_step_waits_for_it(run, does, workers, op):
    """Four samples of 5 ms each; with a worker the step need not wait."""
    counted = run(LOADED, does, str(workers), stop="until-exit", env=METERED).process.one("work")["ops"]
    times = {it["op"]: it["count"] for it in counted if it["op"].startswith("data")}
    assert set(times) == ({op} if op else set()) and all(20_000 <= it < 40_000 for it in times.values()), times


GATHERED = """
import torch
h = torch.nn.Parameter(torch.zeros(100, 8, device="cuda"))
edges = torch.randint(0, 100, (5000,)).cuda()
opt = torch.optim.SGD([h], 0.1)
for _ in range(3):
    picked = h[edges] + h.gather(0, edges[:800].view(100, 8)).sum() + h.index_select(0, edges)
    picked.sum().backward()
    opt.step(); opt.zero_grad()
"""


MASKED = """
import torch
h = torch.nn.Parameter(torch.zeros(10, 20, 8, device="cuda"))
mask = torch.ones(10, 20, dtype=torch.bool, device="cuda")
opt = torch.optim.SGD([h], 0.1)
for _ in range(3):
    h[mask].sum().backward()
    opt.step(); opt.zero_grad()
"""


def test_a_mask_picks_rows_of_what_it_leaves(run):
    ops = run(MASKED, stop="until-exit", env=METERED).process.one("work")["ops"]
    picked = next(it for it in ops if it["op"] == "gathered" and it["bytes"] == 2 * 200 * 8 * 4)
    assert picked["flops"] == 79 * 200


def test_rows_that_an_index_picks_count_one_by_one_and_numbers_by_themselves(run):
    """PyTorch has a block of threads for each row of 32 bytes here, and for each place of the sum another position of one number."""
    ops = run(GATHERED, stop="until-exit", env=METERED).process.one("work")["ops"]
    gathered = sorted((it["flops"], it["bytes"], it["count"]) for it in ops if it["op"] == "gathered")
    rows, turned = (79 * 5000, 2 * 5000 * 8 * 4), (100 * 8, 2 * 100 * 8 * 4)
    forward = [(*turned, 1), (*rows, 2)]
    assert [it for it in gathered if it[:2] in (rows, turned)] == forward
    # Backward: the sum's numbers are added, and two times the rows; those of `[]` are sorted before.
    backward = [it[0] for it in gathered if it not in forward]
    assert backward == [100 * 8, 5000 * 8, 32 * 5000 + round(0.15 * 5000 * 8)]


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


ON_HOST = """
import sys, torch
net = torch.nn.Linear(1000, 10).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    x = torch.rand(4000, 1000)
    x = (x.pin_memory() if sys.argv[1] == "pinned" else x).cuda()
    net(x).sum().backward()
    opt.step(); opt.zero_grad()
"""


def test_numbers_that_the_host_draws_take_it_a_while(run):
    """Four million, of 5.5 ns each. On a phantom they are not drawn again."""
    ops = run(ON_HOST, "as it is", stop="until-exit", env=METERED).process.one("work")["ops"]
    assert how_many(ops, "data") == 22_000 and how_many(ops, "data-alone") == 0


@pytest.mark.parametrize("how, op", [("as it is", "link-unpinned"), ("pinned", "link")])
def test_a_copy_from_memory_that_is_not_pinned_is_another_kind(run, how, op):
    ops = run(ON_HOST, how, stop="until-exit", env=METERED).process.one("work")["ops"]
    assert [(it["op"], it["bytes"]) for it in ops if it["op"].startswith("link")] == [(op, 4000 * 1000 * 4)]


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
import torch, torch.nn as nn
net = nn.ModuleDict({
    "few": nn.Conv2d(3, 64, 3, padding=1), "plain": nn.Conv2d(64, 64, 1), "grouped": nn.Conv2d(64, 64, 3, padding=1, groups=4),
    "narrow": nn.Conv2d(64, 32, 3, padding=1), "up": nn.ConvTranspose2d(64, 48, 2, stride=2), "wide": nn.ConvTranspose2d(64, 96, 1, bias=False),
    "own": nn.Conv1d(64, 64, 3, padding=1, groups=64), "flat": nn.Conv1d(64, 16, 3, padding=1), "last": nn.Conv2d(96, 96, 1),
    "each": nn.Conv2d(64, 64, 3, padding=1, groups=64),
}).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    x = net["plain"](net["grouped"](net["few"](torch.zeros(2, 3, 10, 10, device="cuda"))))
    ends = [net["narrow"](x), net["up"](x), net["last"](net["wide"](x)), net["own"](x.flatten(2)), net["flat"](x.flatten(2)), net["each"](x)]
    sum(it.sum() for it in ends).backward()
    opt.step(); opt.zero_grad()
"""


def test_convolutions_are_told_apart_by_their_channels(run):
    ops = run(CONVOLUTIONS, stop="until-exit", env=METERED).process.one("work")["ops"]
    flops = {}
    for it in ops:
        if it["op"].startswith(("conv", "depthwise")):
            flops[it["op"]] = flops.get(it["op"], 0) + it["count"] * it["flops"]
    places = 2 * 10 * 10
    once = {
        "convolution-few": 3 * 64 * 9, "convolution-of-64": 64 * 64 + 64 * 48 * 4 + 64 * 96, "convolution-grouped-of-16": 64 * 16 * 9,
        "convolution-of-32": 64 * 32 * 9, "depthwise-flat": 64 * 3, "depthwise": 64 * 9, "convolution-flat-of-16": 64 * 16 * 3, "convolution": 96 * 96,
    }  # fmt: skip
    # Forward, and backward to weights and input; the first one has no gradient of its input.
    assert flops == {kind: 2 * places * it * (2 if kind == "convolution-few" else 3) for kind, it in once.items()}


BY_NUMBERS = """
import torch, torch.nn.functional as F
w = torch.nn.Parameter(torch.zeros(2, 4, 8, 16, device="cuda"))
index = torch.zeros(16, dtype=torch.long, device="cuda")
opt = torch.optim.SGD([w], 0.1)
for _ in range(3):
    large = F.interpolate(w, scale_factor=2, mode="bilinear")
    (large.sum() + w.cumsum(1).sum() + w.transpose(2, 3).contiguous().sum() + torch.zeros(2, 4, 8, 3, device="cuda").index_add_(3, index, w).sum()).backward()
    opt.step(); opt.zero_grad()
"""


def test_kernels_that_walk_through_numbers_count_by_numbers(run):
    ops = run(BY_NUMBERS, stop="until-exit", env=METERED).process.one("work")["ops"]
    numbers = 2 * 4 * 8 * 16
    gathered = sum(it["count"] * it["flops"] for it in ops if it["op"] == "gathered")
    # Resampled and back; summed up along a dimension that is not the last; turned; added where an index says. Backward of a sum along a
    # dimension is another one.
    assert gathered == pytest.approx(numbers * (4 * 3.4 + 4 * 1.9 + 2 * 3.2 + 0.87 + 1 + 1), rel=0.001)


ALONG = """
import torch
w = torch.nn.Parameter(torch.zeros(4, 5000, 40, device="cuda"))
opt = torch.optim.SGD([w], 0.1)
for _ in range(3):
    (w.softmax(1).sum() + w.view(4, 5000, 8, 5).log_softmax(2).sum() + w.softmax(-1).sum()).backward()
    opt.step(); opt.zero_grad()
"""


def test_softmax_along_another_dimension_waits_for_each_of_its_numbers(run):
    """With 40 columns 16 threads share one, and 64 do 8 numbers of 5 columns less than one each: they are not shared. Along the last
    dimension a block shares a row."""
    ops = run(ALONG, stop="until-exit", env=METERED).process.one("work")["ops"]
    waits = sorted(it["flops"] for it in ops if it["op"] == "waiting")
    assert waits == pytest.approx([1.45 * 8, 3.05 * 8, 1.45 * 5000 / 16, 3.05 * 5000 / 16])


IN_PLACE = """
import torch
a, b = (torch.zeros(1 << 20, device="cuda") for _ in range(2))
w = torch.nn.Parameter(torch.zeros(1, device="cuda"))
opt = torch.optim.SGD([w], 0.1)
for _ in range(3):
    w.sum().backward()
    a.copy_(b); a.zero_(); a.add_(b); a + b; a.half()
    torch._foreach_addcmul_([a], [b], [b + 1])
    opt.step(); opt.zero_grad()
"""


def test_what_is_done_to_each_number_reads_and_writes_it_once(run):
    ops = run(IN_PLACE, stop="until-exit", env=METERED).process.one("work")["ops"]
    megabytes = [(it["bytes"] >> 20, it["count"]) for it in ops if it["op"] == "elementwise" and it["bytes"] > 1 << 20]
    # Zeros, a half, two copies, `b + 1`, two sums, and one of three that is written, too.
    assert sorted(megabytes) == [(4, 1), (6, 1), (8, 2), (12, 2), (16, 1)]


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


NEW_SIZES = """
import sys, torch, torch.nn as nn, torch.nn.functional as F
conv, dtype = nn.Conv1d(64, 64, 5, padding=2).cuda(), getattr(torch, sys.argv[1])
opt = torch.optim.SGD(conv.parameters(), 0.1)
for n in (100, 110, 120):
    with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
        x = conv(conv(torch.randn(8, 64, n, device="cuda"))).view(8, 1, 64, n).transpose(-1, -2).contiguous()
        loss = F.scaled_dot_product_attention(x, x, x).float().mean()
    loss.backward(); opt.step(); opt.zero_grad()
"""


@pytest.mark.parametrize(("dtype", "attention"), [("float32", 0), ("bfloat16", 2)])
def test_shapes_that_are_planned_when_they_come_first_count_once(run, dtype, attention):
    """Both convolutions have the same shapes, forward; backward the first one's input wants no gradient. Only halves go to cuDNN's attention."""
    ran = run(NEW_SIZES, dtype, stop="until-exit", env=METERED)
    ops = ran.process.one("work")["ops"]
    assert sum(it["count"] for it in ops if it["op"] == "planned-convolution") == 2, ran.stderr
    assert sum(it["count"] for it in ops if it["op"] == "planned-attention") == attention

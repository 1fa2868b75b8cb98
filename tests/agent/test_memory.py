"""The recording is exact and changes nothing."""

import json

import pytest
from harness import release_of
from test_steps import MODEL

TRANSFORMER = """
import json, sys, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(d), nn.MultiheadAttention(d, 4, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1))
    def forward(self, x):
        h = self.norm(x)
        return self.mlp(x + self.attention(h, h, h, need_weights=False)[0])
class Net(nn.Module):
    def __init__(self, d=256, n=4):
        super().__init__()
        self.embed, self.head = nn.Embedding(1000, d), nn.Linear(d, 1000)
        self.blocks = nn.ModuleList(Block(d) for _ in range(n))
    def forward(self, ids, again=False):
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return self.head(x)
net = Net().cuda()
"""

TRAIN = """
def numbers():
    s = torch.cuda.memory_stats()
    return [s[k] for k in ("allocation.all.allocated", "allocation.all.freed", "allocated_bytes.all.current",
        "reserved_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.peak")]
opt = torch.optim.AdamW(net.parameters())
scaler = torch.amp.GradScaler(enabled="amp" in sys.argv)
seen = []
for i in range(4):
    opt.zero_grad()
    ids = torch.randint(0, 1000, (8, 128), device="cuda")
    with torch.autocast("cuda", torch.float16, enabled="amp" in sys.argv):
        loss = F.cross_entropy(net(ids, "again" in sys.argv).flatten(0, 1), ids.flatten())
    seen.append(numbers())
    scaler.scale(loss).backward()
    seen.append(numbers())
    scaler.step(opt); scaler.update()
    seen.append(numbers())
print(json.dumps(seen))
"""


@pytest.mark.parametrize("arguments", [[], ["again"], ["amp"]])
def test_memory_is_the_same_to_the_byte_with_and_without_us(run, arguments):
    without = run(TRANSFORMER + TRAIN, *arguments, agent=False)
    with_us = run(TRANSFORMER + TRAIN, *arguments, stop="until-exit")
    assert without.returncode == with_us.returncode == 0, with_us.stderr
    assert json.loads(with_us.stdout) == json.loads(without.stdout)


def test_marks_name_exact_places_in_the_trace(run):
    p = run(TRANSFORMER + TRAIN, stop="until-exit").process
    trace = p.trace()
    places = {}
    allocs = frees = 0
    for event in trace:
        allocs += event["action"] == "alloc"
        frees += event["action"] == "free_requested"
        places[allocs, frees] = True
    stats = p.one("stats")
    assert (stats["allocs"], stats["frees"]) == (allocs, frees)
    marks = p.all("mark") + p.all("tensors")
    assert len(p.all("mark")) == 4 * 4 * 2 + 4 + 1
    for mark in marks:
        assert (mark["allocs"][0], mark["frees"][0]) in places


def test_resets_by_the_script_do_not_move_our_counters(run):
    resets = "    torch.cuda.reset_peak_memory_stats(); torch.cuda.reset_accumulated_memory_stats()\n"
    script = TRANSFORMER + TRAIN.replace("    opt.zero_grad()\n", "    opt.zero_grad()\n" + resets)
    p = run(script, stop="until-exit").process
    plain = run(TRANSFORMER + TRAIN, stop="until-exit").process
    assert [m["allocs"] for m in p.steps] == [m["allocs"] for m in plain.steps]
    assert p.one("stats") == plain.one("stats")
    assert run(script).process.end["why"] == "steady"


def test_the_scripts_own_memory_history_works_and_does_not_stop_ours(run):
    r = run(
        TRANSFORMER
        + """
import os, pickle
torch.cuda.memory._record_memory_history(max_entries=10, context="all", stacks="all")
x = torch.ones(1000, device="cuda")
torch.cuda.memory._dump_snapshot("mine.pickle")
torch.cuda.memory._record_memory_history(enabled=None)
del x
with open("mine.pickle", "rb") as file:
    print([e["action"] for e in pickle.load(file)["device_traces"][0]][-1])
torch.ones(10, device="cuda")
"""
    )
    assert (r.returncode, r.stdout) == (0, "alloc\n")
    assert r.process.notes == ["memory-history"]
    actions = [event["action"] for event in r.process.trace()]
    assert actions.count("alloc") == r.process.one("stats")["allocs"]


def test_recomputation_is_recorded_safely(run):
    """With context="all" this run dies of a SystemError: see plimsoll_agent/run/memory.py."""
    r = run(TRANSFORMER + TRAIN, "again", stop="until-exit")
    assert r.returncode == 0, r.stderr
    assert r.process.phases == ["zero_grad", "forward", "backward", "optimizer"] * 4
    allocs = [event for event in r.process.trace() if event["action"] == "alloc"]
    assert all(event["frames"] for event in allocs[-20:])
    # Recomputation runs in the engine's thread; its allocations carry module paths as well.
    assert release_of("torch") < (2, 10) or any(event["user_metadata"] == "m=blocks.0.mlp.0" for event in allocs)


@pytest.mark.skipif(release_of("torch") < (2, 10), reason="an allocation of torch says which module made it since 2.10")
def test_allocations_carry_the_path_of_their_module(run):
    r = run(
        TRANSFORMER
        + """
class Fails(nn.Module):
    def forward(self, x):
        y = x * 2
        raise ValueError("in forward")
ids = torch.zeros(2, 8, dtype=torch.long, device="cuda")
net(ids)
class Outer(nn.Module):
    def __init__(self):
        super().__init__(); self.inner = nn.Sequential(nn.Linear(8, 8), Fails())
    def encode(self, x): return self.inner(x)
outer = Outer().cuda()
try:
    outer.encode(torch.ones(8, 8, device="cuda"))
except ValueError: pass
z = torch.ones(5000, device="cuda")
"""
    )
    assert r.returncode == 0, r.stderr
    paths = [event["user_metadata"] for event in r.process.trace() if event["action"] == "alloc"]
    assert {"m=embed", "m=blocks.3.attention", "m=blocks.0.mlp.3", "m=Outer.inner.0", "m=Outer.inner.1"} <= set(paths)
    assert paths[-1] == ""


def test_everything_that_has_a_name_is_named(run):
    r = run(
        TRANSFORMER
        + """
net.register_buffer("positions", torch.zeros(77, device="cuda"))
loose = torch.zeros(99, device="cuda", requires_grad=True)
opt = torch.optim.AdamW([{"params": net.parameters()}, {"params": [loose]}])
for i in range(3):
    opt.zero_grad()
    batch = {"ids": torch.zeros(8, 16, dtype=torch.long, device="cuda")}
    (net(**batch).sum() + loose.sum()).backward()
    opt.step()
"""
    )
    p = r.process
    weight = "blocks.2.attention.in_proj_weight"
    assert {weight, "embed.weight", "param_groups[1].params[0]"} <= p.names("parameter")
    assert {weight, "param_groups[1].params[0]"} <= p.names("gradient")
    assert p.names("buffer") == {"positions"}
    assert {weight + ".exp_avg", weight + ".exp_avg_sq"} <= p.names("optimizer_state")
    assert p.names("input") == {"ids"}
    # Every address is that of a block which is live at that place in the trace.
    trace = p.trace()
    for line in p.all("tensors"):
        live, allocs, frees = set(), 0, 0
        for event in trace:
            if (allocs, frees) == (line["allocs"][0], line["frees"][0]):
                break
            if event["action"] == "alloc":
                live.add(event["addr"])
                allocs += 1
            elif event["action"] == "free_requested":
                live.discard(event["addr"])
                frees += 1
        assert {entry["address"] for entry in line["entries"]} <= live


def test_what_is_compiled_by_torchscript_is_named(run):
    """Its modules keep their children in a mapping of their own kind."""
    r = run(
        """
import torch, torch.nn as nn
class Block(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__(); self.inner = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    @torch.jit.script_method
    def forward(self, x):
        return x + self.inner(x)
net = nn.Sequential(Block(), torch.jit.script(nn.Linear(8, 8))).cuda()
opt = torch.optim.Adam(net.parameters())
for i in range(3):
    opt.zero_grad(); net(torch.ones(4, 8, device="cuda")).sum().backward(); opt.step()
"""
    )
    assert r.returncode == 0, r.stderr
    assert "agent-failed" not in r.process.notes
    parts = ("0.inner.0", "0.inner.2", "1")
    assert r.process.names("parameter") == {f"{part}.{it}" for part in parts for it in ("weight", "bias")}


def test_lazy_modules_have_no_memory_before_their_first_call(run):
    """Asked for their size, their parameters raise."""
    r = run(
        """
import torch, torch.nn as nn
net = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(8)).cuda()
other = nn.LazyConv2d(4, 3)
net(torch.ones(4, 8, device="cuda"))
opt = torch.optim.Adam(net.parameters())
for i in range(3):
    opt.zero_grad(); net(torch.ones(4, 8, device="cuda")).sum().backward(); opt.step()
"""
    )
    assert r.returncode == 0, r.stderr
    assert "agent-failed" not in r.process.notes
    assert r.process.names("parameter") == {f"{part}.{it}" for part in "02" for it in ("weight", "bias")}


def test_no_tensor_is_kept_alive(run):
    r = run(
        MODEL
        + """
import gc, weakref
opt = torch.optim.AdamW(net.parameters())
for i in range(2):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
watched = [weakref.ref(t) for t in (x, y, net, opt, net[0].weight)]
del x, y, net, opt
gc.collect()
torch._C._cuda_clearCublasWorkspaces()
print([w() for w in watched], torch.cuda.memory_allocated() == 0)
"""
    )
    assert r.stdout == "[None, None, None, None, None] True\n"


def test_a_process_that_compiles_nothing_does_not_import_the_compiler_at_its_end(run):
    """The snapshot asks torch whether there is one, and torch would import it to answer: two seconds of each run."""
    ran = run(
        """
        import os, sys, torch
        for name in [it for it in sys.modules if it.startswith("torch._inductor")]:
            del sys.modules[name]
        vars(torch).pop("_inductor", None)
        class Told:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "torch._inductor":
                    os.write(1, b"imported")
        sys.meta_path.insert(0, Told)
        kept = torch.ones(3, device="cuda")
        """
    )
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
    assert len(ran.process.trace()) > 0

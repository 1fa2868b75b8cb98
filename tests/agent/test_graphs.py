"""What autograd's graph shows when a backward pass begins: attention written out, repeated casts, gradients for no optimizer, dense tables."""

import pytest

HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
def train(net, given, steps=3, parameters=None):
    opt = torch.optim.SGD(parameters or net.parameters(), 0.1)
    for _ in range(steps):
        opt.zero_grad(); net(given()).float().sum().backward(); opt.step()
"""

ATTENTION = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (it.view(b, t, 4, 16).transpose(1, 2) for it in self.qkv(x).chunk(3, -1))
        return self.out(self.attend(q, k, v).transpose(1, 2).reshape(b, t, 64))
    def attend(self, q, k, v):
%s
train(nn.Sequential(Attention(), Attention()).cuda(), lambda: torch.randn(2, 32, 64, device="cuda"))
"""


def graphs(run, text, kind, **how):
    lines = run(HEAD + text, stop="until-exit", **how).process.all("graph")
    return [entry for line in lines for entry in line.get(kind, [])]


@pytest.mark.parametrize(
    "attend, saved",
    [
        ("return (q @ k.transpose(-2, -1) / 4).softmax(-1) @ v", 1),
        ("return F.dropout((q @ k.transpose(-2, -1) / 4).masked_fill(torch.ones(32, 32, device='cuda', dtype=torch.bool).triu(1), -1e9).softmax(-1), 0.1) @ v", 3),
        ("return torch.einsum('bhqk,bhkd->bhqd', F.softmax(torch.einsum('bhqd,bhkd->bhqk', q, k), dim=-1), v)", 1),
        ("return F.softmax(q.half() @ k.half().transpose(-2, -1), dim=-1, dtype=torch.float32).to(torch.float16) @ v.half() + 0.0 * v", 2),
    ],
)
def test_attention_that_is_written_out_is_counted_by_its_shape(run, attend, saved):
    if "half" in attend:
        attend = attend.replace(" + 0.0 * v", "").replace("return ", "return (") + ").float()"
    (found,) = graphs(run, ATTENTION % ("        " + attend), "attention")
    assert (found["shape"], found["count"], len(found["saved"])) == ([8, 32, 32], 2, saved)


@pytest.mark.parametrize(
    "attend",
    [
        "return F.scaled_dot_product_attention(q, k, v)",
        "return v * (q * k).softmax(-1)",  # a gate
        "return v * (q @ k.transpose(-2, -1)).sum(-1, keepdim=True).sigmoid()",
    ],
)
def test_other_softmaxes_are_no_attention(run, attend):
    assert graphs(run, ATTENTION % ("        " + attend), "attention") == []


JAGGED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
    def forward(self, rows):
        x = torch.nested.nested_tensor_from_jagged(self.first(rows), torch.tensor([0, 3, 10, 12], device="cuda"))
        with torch.autocast("cuda", torch.bfloat16):
            return self.second(x).values()
train(Net().cuda(), lambda: torch.randn(12, 64, device="cuda"))
"""


def test_rows_of_a_nested_tensor_have_no_one_length(run):
    assert "agent-failed" not in run(HEAD + JAGGED, stop="until-exit").process.notes


ROWS = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.gate, self.values = nn.Linear(64, 32, bias=False), nn.Linear(32, 64, bias=False)
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return %s
train(nn.Sequential(Attention(), Attention()).cuda(), lambda: torch.randn(32, 64, device="cuda"))
"""


@pytest.mark.parametrize(
    "attend",
    [
        "(q @ k.t() / 8).softmax(-1) @ v",
        "torch.einsum('ij,jd->id', torch.einsum('id,jd->ij', q, k).softmax(-1), v)",
        "(v.t() @ (k @ q.t()).softmax(0)).t()",
    ],
)
def test_attention_without_a_batch_is_counted(run, attend):
    (found,) = graphs(run, ROWS % attend, "attention")
    assert (found["shape"], found["count"]) == ([1, 32, 32], 2)


@pytest.mark.parametrize("attend", ["self.values(self.gate(x).softmax(-1))", "self.gate(x).softmax(-1).t() @ v", "F.scaled_dot_product_attention(q[None], k[None], v[None])[0]"])
def test_a_layer_of_parameters_is_no_side_of_an_attention(run, attend):
    assert graphs(run, ROWS % attend, "attention") == []


def test_multihead_attention_makes_scores_unless_its_weights_are_not_wanted(run):
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
    def forward(self, x):
        return self.attention(x, x, x%s)[0]
train(Net().cuda(), lambda: torch.randn(2, 32, 64, device="cuda"))
"""
    assert graphs(run, text % "", "attention")[0]["count"] == 1
    assert graphs(run, text % ", need_weights=False", "attention") == []


def test_a_run_that_ends_in_its_first_attention_shows_it_too(run):
    text = ATTENTION.replace("torch.randn(2, 32, 64", "torch.randn(8, 4096, 64") % "        return (q @ k.transpose(-2, -1)).softmax(-1) @ v"
    found = graphs(run, "torch.cuda.set_per_process_memory_fraction(0.03)\n" + text, "attention")
    assert found and found[0]["shape"] == [32, 4096, 4096]


LOOP = """
net = nn.Linear(32, 32).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    x = torch.randn(4, 32, device="cuda")
%s
    opt.zero_grad(); x.float().sum().backward(); opt.step()
"""


@pytest.mark.parametrize(
    "loop, copies",
    [
        ("    with torch.autocast('cuda', torch.bfloat16, cache_enabled=False):\n        for _ in range(5): x = net(x)", 5),
        ("    for _ in range(5):\n        with torch.autocast('cuda', torch.bfloat16): x = net(x)", 5),
        ("    for _ in range(5): x = F.linear(x.half(), net.weight.half())", 5),
        ("    with torch.autocast('cuda', torch.bfloat16):\n        for _ in range(5): x = net(x)", None),
        ("    w = net.weight.half()\n    for _ in range(5): x = F.linear(x.half(), w)", None),
        ("    for _ in range(5): x = net(x)", None),
    ],
)
def test_weights_that_are_cast_in_each_call_are_counted(run, loop, copies):
    found = {it["copies"] for it in graphs(run, LOOP % loop, "casts")}
    assert found == ({copies} if copies else set())


FROZEN = """
net, other = nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 32)).cuda(), nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
%s
for _ in range(4):
    x = torch.randn(4, 32, device="cuda")
%s
    opt.zero_grad(); loss.backward(); opt.step()
"""


def unowned(run, before, loss):
    return graphs(run, FROZEN % (before, loss), "unowned")


def test_a_loss_network_and_a_teacher_that_are_not_frozen(run):
    (found,) = unowned(run, "other.eval()", "    loss = (other(net(x)) - 1).pow(2).mean()")
    assert (found["part"], found["needed"], len(found["names"])) == ("Sequential", True, 4)
    (found,) = unowned(run, "", "    loss = (net(x)[:, :8] - other(x)).pow(2).mean()")
    assert (found["needed"], found["bytes"]) == (False, 4 * (32 * 64 + 64 + 64 * 8 + 8))


def test_a_pass_that_runs_out_before_it_comes_to_what_is_trained_shows_what_is_not_frozen(run):
    runs_out = "    y = other(x)\n    torch.empty(1 << 45, device='cuda')\n    loss = net(x)[:, :8].mean() + y.mean()"
    found = unowned(run, "", runs_out)
    assert sorted((it["model"], it["part"], it["needed"], len(it["names"])) for it in found) == [("Sequential", "0", False, 2), ("Sequential", "2", False, 2)]
    assert unowned(run, "other.requires_grad_(False)", runs_out) == []


@pytest.mark.parametrize(
    "before, loss",
    [
        ("other.requires_grad_(False)", "    loss = (other(net(x)) - 1).pow(2).mean()"),
        ("", "    with torch.no_grad(): wanted = other(x)\n    loss = (net(x)[:, :8] - wanted).pow(2).mean()"),
        ("opt.add_param_group({'params': list(other.parameters())})", "    loss = (other(net(x)) - 1).pow(2).mean()"),
        # An optimizer of its own.
        ("", "    with torch.no_grad():\n        for p in other.parameters():\n            if p.grad is not None: p.sub_(p.grad); p.grad = None\n    loss = other(net(x)).mean()"),
        # All weights have masters of another type, which the optimizer has.
        ("opt.param_groups[0]['params'] = [p.detach().clone() for p in net.parameters()]", "    loss = other(net(x)).mean()"),
        # Two optimizers, one after the other.
        ("opt2 = torch.optim.SGD(other.parameters(), 0.1)", "    opt2.zero_grad(); other(net(x).detach()).mean().backward(); opt2.step()\n    loss = other(net(x)).mean()"),
    ],
)
def test_networks_that_are_frozen_or_trained_are_no_finding(run, before, loss):
    assert unowned(run, before, loss) == []


def test_a_table_with_a_dense_gradient_says_how_many_rows_a_batch_uses(run):
    text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(5000, 16%s), nn.Linear(16, 5000, bias=False)
    def forward(self, ids):
        return self.out(self.table(ids).sum(1))
net = Net().cuda()
%s
train(net, lambda: torch.randint(0, 5000, (8, 4), device="cuda"))
"""
    (found,) = graphs(run, text % ("", ""), "tables")
    assert found == {"name": "table.weight", "bytes": 5000 * 16 * 4, "rows": 5000, "used": 32}
    assert graphs(run, text % (", sparse=True", ""), "tables") == []
    bag = text.replace("nn.Embedding(", "nn.EmbeddingBag(").replace(".sum(1)", "") % ("", "")
    (found,) = graphs(run, bag, "tables")
    assert found["rows"] == 5000 and found["bags"] is True
    # A weight that is the output layer, too, has a dense gradient in any case.
    assert graphs(run, text % ("", "net.out.weight = net.table.weight"), "tables") == []


def test_a_validation_that_is_one_batch_is_said_and_one_in_parts_is_not(run):
    text = """
net = nn.Linear(32, 8).cuda()
train(net, lambda: torch.randn(16, 32, device="cuda"))
with torch.no_grad():
    for part in torch.randn(1600, 32, device="cuda").split(%d): net(part)
"""
    (found,) = run(HEAD + text % 1600, stop="until-exit").process.all("large_batch")
    assert (found["rows_in_training"], found["rows"]) == (16, 1600)
    assert run(HEAD + text % 32, stop="until-exit").process.all("large_batch") == []


LOGGED = """
def entropy_of(logits):
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)
net = nn.Linear(8, 8).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(4):
    logits = net(torch.randn(4, 8, device="cuda"))
    BODY
    opt.zero_grad(); loss.backward(); opt.step()
"""


@pytest.mark.parametrize(
    "body, names",
    [
        ("loss = logits.sum(); entropy = entropy_of(logits).mean()", {"entropy"}),
        ("loss = logits.sum()\n    with torch.no_grad(): entropy = entropy_of(logits).mean()", set()),
        ("entropy = entropy_of(logits).mean(); loss = logits.sum() - entropy", set()),
        ("entropy = entropy_of(logits).mean(); loss = logits.sum(); loss.backward(retain_graph=True); loss = entropy", set()),
    ],
    ids=["logged", "without a graph", "used", "used by the pass after"],
)
def test_a_variable_whose_graph_no_pass_goes_through(run, body, names):
    found = graphs(run, LOGGED.replace("BODY", body), "unused")
    assert {it["name"] for it in found} == names, found

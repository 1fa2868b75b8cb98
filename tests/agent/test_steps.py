"""What one step is, when memory is steady, and how a run ends."""

import pytest

MODEL = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
def batch(n=32):
    return torch.randn(n, 64, device="cuda"), torch.zeros(n, dtype=torch.long, device="cuda")
"""


def test_a_plain_loop_stops_at_the_third_step(run):
    r = run(
        MODEL
        + """
opt = torch.optim.AdamW(net.parameters())
for i in range(100):
    x, y = batch()
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
print("not reached")
"""
    )
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")
    p = r.process
    assert p.phases == ["zero_grad", "forward", "backward", "optimizer"] * 3
    assert [m["step"] for m in p.steps] == [1, 2, 3]
    assert (p.end["why"], p.end["steps"], p.end["steady"], p.end["exit_code"]) == ("steady", 3, True, 0)
    assert p.notes == []


def test_a_number_of_steps_and_until_exit(run):
    loop = (
        MODEL
        + """
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(7):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
print("done")
"""
    )
    five = run(loop, stop="steps:5")
    assert (five.process.end["why"], five.process.end["steps"], five.stdout) == ("steps", 5, "")
    whole = run(loop, stop="until-exit")
    assert (whole.process.end["why"], whole.process.end["steps"], whole.stdout) == ("exit", 7, "done\n")


def test_a_candidate_that_takes_too_much_ends_at_once_or_after_so_many_steps(run):
    loop = MODEL + """
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(20):
    x, y = batch(32 if i != 1 else 1 << 18)
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
"""
    fits, at_once, later = (run(loop, stop="until-exit", env={"PLIMSOLL_HOPELESS": it}) for it in ("1000000000:3", "200000000", "200000000:3"))
    assert (fits.process.end["why"], fits.process.end["steps"]) == ("exit", 20)
    assert (at_once.process.end["why"], at_once.process.end["steps"]) == ("hopeless", 1)
    assert (later.process.end["why"], later.process.end["steps"]) == ("hopeless", 3)


def test_memory_that_rises_is_looked_at_for_longer(run):
    leak = (
        MODEL
        + """
opt = torch.optim.SGD(net.parameters(), 0.1)
kept = []
for i in range(1000):
    x, y = batch()
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); opt.step()
    more = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    kept = [*kept, more]
"""
    )
    assert run(leak).process.end["why"] == "oom", "after some 80 steps"
    # What is full is steady.
    r = run(leak.replace("more]", "more][-50:]"))
    assert r.process.end["steady"] and 50 < r.process.end["steps"] < 70
    # So little is no reason to wait.
    r = run(leak.replace("1 << 28", "512"))
    assert (r.process.end["steps"], r.process.end["steady"], r.process.end["why"]) == (30, False, "steps")
    assert r.process.notes == ["not-steady"]


def test_what_the_script_stores_every_so_many_steps_is_waited_for(run):
    loop = MODEL + """
opt, kept = torch.optim.SGD(net.parameters(), 0.1), []
for i in range(6000):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
    if i % 40 == 0: kept.append(torch.zeros(1 << 20, device="cuda"))
"""
    assert run(loop, stop="validation").process.end["steps"] > 400
    seldom = run(loop.replace("i % 40", "i % 400"), stop="validation").process
    assert seldom.end["steps"] < 60 and "stores-later" in seldom.notes
    numbers = run(loop.replace('torch.zeros(1 << 20, device="cuda")', "x.sum().item()"), stop="validation").process
    assert numbers.end["steps"] < 60 and "stores-later" not in numbers.notes


def test_memory_that_changes_and_does_not_rise_ends_after_thirty_steps(run):
    r = run(
        MODEL
        + """
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(1000):
    x = torch.randn(8 + 32 * (i * 7 % 11), 64, device="cuda")
    opt.zero_grad(); loss = net(x).sum(); loss.backward(); opt.step()
"""
    )
    assert (r.process.end["steps"], r.process.end["steady"], r.process.end["why"]) == (30, False, "steps")


def test_gradient_accumulation_counts_optimizer_steps(run):
    r = run(
        MODEL
        + """
opt = torch.optim.AdamW(net.parameters())
for i in range(100):
    x, y = batch()
    (F.cross_entropy(net(x), y) / 4).backward()
    if (i + 1) % 4 == 0:
        opt.step(); opt.zero_grad()
"""
    )
    assert r.process.end["steps"] == 3
    assert r.process.phases.count("backward") == 12


def test_a_gan_takes_one_step_with_both_optimizers(run):
    r = run(
        MODEL
        + """
g, d = nn.Linear(16, 64).cuda(), nn.Linear(64, 1).cuda()
og, od = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
for i in range(100):
    for k in range(3):
        od.zero_grad(); d(g(torch.randn(8, 16, device="cuda")).detach()).mean().backward(); od.step()
    og.zero_grad(); d(g(torch.randn(8, 16, device="cuda"))).mean().backward(); og.step()
"""
    )
    assert r.process.end["steps"] == 3
    assert r.process.phases.count("optimizer") == 12
    assert {"weight", "Linear.weight"} <= r.process.names("parameter")


def test_an_optimizer_for_every_parameter_inside_backward(run):
    r = run(
        MODEL
        + """
net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(20)]).cuda()
each = {p: torch.optim.AdamW([p]) for p in net.parameters()}
def step(p):
    each[p].step(); each[p].zero_grad()
for p in net.parameters():
    p.register_post_accumulate_grad_hook(step)
for i in range(100):
    net(batch()[0]).sum().backward()
"""
    )
    assert (r.process.end["steps"], r.process.end["why"], r.returncode) == (3, "steady", 0)
    assert r.process.phases == ["forward", "backward"] * 3


def test_a_gradient_scaler(run):
    r = run(
        MODEL
        + """
opt = torch.optim.AdamW(net.parameters())
scaler = torch.amp.GradScaler()
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: 1.0)
for i in range(100):
    x, y = batch()
    with torch.autocast("cuda", torch.float16):
        loss = F.cross_entropy(net(x), y)
    scaler.scale(loss).backward(); scaler.step(opt); scaler.update(); sched.step(); opt.zero_grad()
"""
    )
    assert (r.process.end["steps"], r.process.end["why"], r.stderr) == (3, "steady", "")


def test_a_closure_is_marked_inside_the_optimizer(run):
    r = run(
        MODEL
        + """
opt = torch.optim.LBFGS(net.parameters(), max_iter=2)
x, y = batch()
def closure():
    opt.zero_grad(); loss = F.cross_entropy(net(x), y); loss.backward(); return loss
for i in range(4):
    opt.step(closure)
"""
    , stop="until-exit")
    assert r.process.end["steps"] == 4
    assert r.process.phases[:4] == ["optimizer", "zero_grad", "forward", "backward"]


def test_an_optimizer_that_wraps_another_counts_once(run):
    r = run(
        MODEL
        + """
class Wrapper(torch.optim.Optimizer):
    def __init__(self, inner):
        self.inner = inner
        super().__init__(inner.param_groups, {})
    def step(self, closure=None):
        return self.inner.step(closure)
opt = Wrapper(torch.optim.SGD(net.parameters(), 0.1))
for i in range(5):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
"""
    , stop="until-exit")
    assert r.process.end["steps"] == 5


def test_an_optimizer_that_never_steps_is_given_up(run):
    r = run(
        MODEL
        + """
other = nn.Linear(4, 4).cuda()
unused = torch.optim.SGD(other.parameters(), 0.1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(100):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
"""
    )
    assert r.process.notes == ["optimizer-unused"]
    assert r.process.end["why"] == "steady"
    assert [m["step"] for m in r.process.steps] == list(range(1, r.process.end["steps"] + 1))


def test_without_an_optimizer_backward_counts(run):
    r = run(
        MODEL
        + """
for i in range(100):
    x, y = batch()
    net.zero_grad()
    F.cross_entropy(net(x), y).backward()
    with torch.no_grad():
        for p in net.parameters(): p -= 0.1 * p.grad
"""
    )
    assert (r.process.end["why"], r.process.notes) == ("steady", ["steps-by-backward"])
    assert len(r.process.steps) == r.process.end["steps"] >= 3


def test_inference_counts_forward(run):
    r = run(
        MODEL
        + """
net.eval()
with torch.no_grad():
    for i in range(1000):
        net(batch()[0])
"""
    )
    # Late: a program may evaluate for a while before it trains.
    assert (r.process.end["why"], r.process.end["steps"], r.process.notes) == ("steady", 200, ["steps-by-forward"])
    assert set(r.process.phases) == {"evaluation"}


def test_a_graph_that_is_replayed_is_a_forward_pass(run):
    loop = MODEL + """
graphs = {}
@torch.no_grad()
def answer(x):
    if len(x) not in graphs:
        given, graph = torch.zeros_like(x), torch.cuda.CUDAGraph()
        net(given)
        with torch.cuda.graph(graph):
            made = net(given)
        graphs[len(x)] = graph, given, made
    graph, given, made = graphs[len(x)]
    given.copy_(x); graph.replay()
    return made.sum(1)
for i in range(40):
    answer(batch(32 + 32 * (i % 2))[0])
"""
    p = run(loop, stop="until-exit").process
    # Two for each length, and one in each turn.
    assert p.phases == ["evaluation"] * (4 + 40)
    # One that allocates nothing is no step: it comes right after its capture.
    assert p.end["steps"] == 42
    trained = run(loop.replace("@torch.no_grad()", "").replace("made = net(given)", "made = net(given).detach()"), stop="until-exit").process
    assert trained.phases == ["forward"] * 4


def test_what_prepares_pictures_on_the_host_is_no_step(run):
    r = run(
        MODEL
        + """
class Normalize(nn.Module):
    def forward(self, x):
        return (x - 0.5) / 0.5
prepare = Normalize()
labels = [prepare(torch.rand(3)).sum() > 0 for _ in range(500)]   # Of a whole dataset, before anything else.
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(100):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
"""
    )
    assert (r.process.end["why"], r.process.end["steps"], r.process.notes) == ("steady", 3, [])


def test_training_in_evaluation_mode_is_training(run):
    r = run(
        MODEL
        + """
net.eval()
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(20):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
"""
    )
    assert r.process.phases == ["zero_grad", "forward", "backward", "optimizer"] * 3


def test_a_frozen_model_is_evaluated_and_passes_gradients_on(run):
    r = run(
        MODEL
        + """
net.eval().requires_grad_(False)
for i in range(20):
    net(batch()[0])
image = torch.randn(32, 64, device="cuda", requires_grad=True)
opt = torch.optim.SGD([image], 0.1)
for i in range(20):
    opt.zero_grad(); net(image).sum().backward(); opt.step()
"""
    )
    assert r.process.phases[19:23] == ["evaluation", "zero_grad", "forward", "backward"]


def test_an_evaluation_before_training_does_not_end_the_run(run):
    r = run(
        MODEL
        + """
with torch.no_grad():
    for i in range(20): net(batch()[0])
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(20):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
"""
    )
    assert "optimizer" in r.process.phases
    assert [m["step"] for m in r.process.steps] == [1, 2, 3]


LOOP = """
def train():
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for i in range(100):
        x, y = batch()
        opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
    print("not reached")
"""


def test_finally_and_atexit_run(run):
    r = run(
        MODEL
        + LOOP
        + """
import atexit
atexit.register(print, "atexit")
try:
    train()
finally:
    print("finally")
"""
    )
    assert (r.returncode, r.stdout, r.stderr) == (0, "finally\natexit\n", "")


@pytest.mark.parametrize("swallow", ["except:", "except BaseException:"])
def test_a_loop_that_swallows_everything_is_ended_all_the_same(run, swallow):
    r = run(
        MODEL
        + """
import atexit
atexit.register(print, "atexit")
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(100_000):
    try:
        x, y = batch()
        opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
    %s
        pass
print("not reached")
"""
        % swallow
    )
    assert (r.returncode, r.stdout, r.stderr) == (0, "atexit\n", "")
    assert (r.process.end["why"], r.process.end["steps"], r.process.notes) == ("steady", 3, ["stop-ignored"])


def test_training_in_a_thread(run):
    r = run(
        MODEL
        + LOOP
        + """
import threading
thread = threading.Thread(target=train)
thread.start(); thread.join()
print("joined")
"""
    )
    assert (r.returncode, r.stdout, r.stderr) == (0, "joined\n", "")
    assert (r.process.end["why"], r.process.end["steps"]) == ("steady", 3)


ON_THE_HOST = """
small = nn.Linear(8, 8)
on_host = torch.optim.Adam(small.parameters())
def on_the_host(n):
    for _ in range(n):
        on_host.zero_grad(); small(torch.randn(4, 8)).pow(2).mean().backward(); on_host.step()
"""


def test_a_step_on_the_host_is_no_step(run):
    r = run(
        "import torch, torch.nn as nn, torch.nn.functional as F"
        + ON_THE_HOST
        + "on_the_host(200)\n"
        + MODEL
        + """
opt = torch.optim.AdamW(net.parameters())
on_the_host(2)
for i in range(100):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
"""
    )
    assert (r.returncode, r.stderr) == (0, "")
    p = r.process
    assert [m["step"] for m in p.steps] == [1, 2, 3]
    assert all(sum(m["allocs"]) for m in p.steps)
    assert (p.end["why"], p.end["steps"]) == ("steady", 3)


def test_a_step_that_makes_states_for_a_checkpoint_is_no_step(run):
    r = run(
        MODEL
        + """
from torch.distributed.checkpoint.state_dict import get_state_dict
opt = torch.optim.AdamW(net.parameters())
get_state_dict(net, opt)
print("states", len(opt.state))
for i in range(2):
    x, y = batch()
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
""",
        stop="until-exit",
    )
    assert (r.returncode, r.stdout, r.stderr) == (0, "states 4\n", "")
    assert r.process.end["steps"] == 2 and [m["step"] for m in r.process.steps] == [1, 2]

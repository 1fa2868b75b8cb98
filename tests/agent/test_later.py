"""What comes after the first steps is seen soon: the end of an epoch, its validation, its checkpoint."""

import sys

import pytest
from harness import ROOT
from test_steps import MODEL

TRAINS = (
    MODEL
    + """
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
opt = torch.optim.AdamW(net.parameters())
def loader(n):
    return DataLoader(TensorDataset(torch.randn(n, 64), torch.zeros(n, dtype=torch.long)), 16)
def step(x, y):
    opt.zero_grad(); F.cross_entropy(net(x.cuda()), y.cuda()).backward(); opt.step()
def evaluate():
    net.eval()
    with torch.no_grad():
        kept = [net(torch.randn(1024, 64, device="cuda")) for _ in range(5)]
    net.train()
    print("evaluated", flush=True)
"""
)

STEADY = range(3, 20)
"""The steps after which a run is steady: some more are looked at, fewer on a busy machine."""


SCRIPTS = {
    "after an epoch": (
        """
for epoch in range(50):
    for x, y in loader(16_000): step(x, y)
    evaluate()
    torch.save(net.state_dict(), "last.pt"); print("saved")
""",
        ["evaluated", "saved"],
        ("steady", "+1", True),
    ),
    "every so many steps of a loop": (
        """
for number in range(1, 100_000):
    step(*batch())
    if number % 50 == 0:
        evaluate()
""",
        ["evaluated"],
        ("steady", 51, True),
    ),
    "every so many steps of an only epoch": (
        """
number = 0
for x, y in loader(16_000):
    step(x, y); number += 1
    if number % 20 == 0:
        evaluate()
print("the end")
""",
        ["evaluated"],
        ("steady", 21, True),
    ),
    "without no_grad, in a stream without an end": (
        """
class Stream(IterableDataset):
    def __iter__(self):
        while True: yield torch.randn(64), 0
for number, (x, y) in enumerate(DataLoader(Stream(), 16)):
    step(x, y)
    if number and number % 32 == 0:
        net.eval(); kept = net(torch.randn(1024, 64, device="cuda")); net.train()
        print("evaluated")
""",
        ["evaluated"],
        ("steady", 34, True),
    ),
    "while a teacher is called in each step": (
        """
import copy
teacher = copy.deepcopy(net).eval()
for number in range(1, 100_000):
    x, y = batch()
    with torch.no_grad(): teacher(x)
    step(x, y)
    if number % 50 == 0:
        evaluate()
""",
        ["evaluated"],
        ("steady", 51, True),
    ),
    "never": (
        """
for epoch in range(3):
    for x, y in loader(16_000): step(x, y)
print("the end")
""",
        ["the end"],
        ("exit", "+3", False),
    ),
    "never, in a loop": ("for _ in range(100_000): step(*batch())", [], ("steady", "+0", False)),
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("when", sorted(SCRIPTS))
def test_an_evaluation_is_seen_soon(run, when):
    script, printed, expected = SCRIPTS[when]
    # Of what never comes it does not speak.
    before = TRAINS.partition("def evaluate")[0] if when.startswith("never") else TRAINS
    r = run(before + script, stop="validation")
    assert (r.returncode, r.stdout.split("\n")[:-1], r.stderr) == (0, printed, "")
    end = r.process.end
    before = end["later"]["steps_before"]
    why, steps, evaluation = expected
    steps = before + int(steps) if isinstance(steps, str) else steps
    assert (end["why"], end["steps"], end["later"]["evaluation"]) == (why, steps, evaluation)
    assert end["steady"] and before in STEADY
    assert r.process.notes == []


def test_one_validation_is_seen_without_a_look_whether_memory_rises_later(run):
    r = run(TRAINS + SCRIPTS["after an epoch"][0], stop="one-validation")
    assert (r.returncode, r.stdout, r.stderr) == (0, "evaluated\nsaved\n", "")
    end = r.process.end
    assert (end["steps"], end["later"]["steps_before"], end["later"]["evaluation"]) == (4, 3, True)
    assert end["steady"] and r.process.notes == []


def test_an_evaluation_is_looked_for_after_so_many_steps_where_memory_is_never_steady(run):
    loop = TRAINS + """
for number in range(1, 100_000):
    step(*batch(32 + number % 7 * 100))
    if number % 50 == 0:
        evaluate()
"""
    late, soon = (run(loop, stop=it).process.end for it in ("one-validation", "one-validation:3"))
    assert late["later"]["evaluation"] and soon["later"]["evaluation"]
    assert late["later"]["steps_before"] == 30 and soon["later"]["steps_before"] == 3, (late, soon)


def test_what_fails_after_the_training_steps_is_said_and_no_more(run):
    r = run(
        TRAINS
        + """
batches = loader(16_000)
for epoch in range(2):
    n = 0
    for x, y in batches:
        step(x, y); n += 1
    assert n == len(batches), "too few"
""",
        stop="validation",
    )
    assert r.returncode == 1 and "AssertionError: too few" in r.stderr
    end = r.process.end
    assert (end["why"], end["exit_code"], end["exception"]) == ("steady", 0, None) and end["steps"] in STEADY
    assert r.process.notes == ["failed-later"]
    (note,) = (it for it in r.process.all("note") if it["code"] == "failed-later")
    assert "AssertionError: too few at script_1.py:" in note["text"]


def test_running_out_in_an_evaluation_is_running_out(run):
    r = run(
        TRAINS
        + """
for epoch in range(2):
    for x, y in loader(16_000): step(x, y)
    net.eval()
    net(torch.empty(1 << 40, 64, device="cuda"))
""",
        stop="validation",
    )
    assert r.returncode == 1
    assert r.process.end["why"] == "oom" and r.process.end["steps"] in STEADY


def test_trainers_are_asked_to_validate(run):
    r = run(
        """
import torch, lightning as L, torch.nn as nn
class Module(L.LightningModule):
    def __init__(self):
        super().__init__(); self.net = nn.Linear(64, 10)
    def training_step(self, b, i): return nn.functional.cross_entropy(self.net(b[0]), b[1])
    def validation_step(self, b, i): nn.functional.cross_entropy(self.net(b[0]), b[1])
    def on_validation_epoch_end(self): print("validated" if not self.trainer.sanity_checking else "checked")
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
data = torch.utils.data.TensorDataset(torch.randn(16_000, 64), torch.randint(0, 10, (16_000,)))
loader = torch.utils.data.DataLoader(data, batch_size=16)
few = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "limit_val_batches": 4, "enable_model_summary": False}
L.Trainer(max_epochs=2, accelerator="gpu", devices=1, **few).fit(Module(), loader, loader)
""",
        stop="validation",
    )
    assert r.returncode == 0 and r.stdout.split() == ["checked", "validated"], r.stderr
    assert r.process.end["steps"] in STEADY and r.process.end["later"]["evaluation"]
    r = run(
        """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __len__(self): return 400
    def __getitem__(self, i):
        ids = torch.randint(0, 500, (64,)); return {"input_ids": ids, "labels": ids}
net = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=64, n_head=4, vocab_size=500, bos_token_id=0, eos_token_id=1))
arguments = TrainingArguments("out", per_device_train_batch_size=4, report_to=[], eval_strategy="steps", eval_steps=50, save_strategy="no")
Trainer(net, arguments, train_dataset=Data(), eval_dataset=Data()).train()
""",
        stop="validation",
        timeout=240,
    )
    assert r.returncode == 0 and "eval_loss" in r.stdout, r.stderr
    assert r.process.end["steps"] - 1 in STEADY and r.process.end["later"]["evaluation"]


SPEAK = {
    "if step % 100 == 0: print(loss)": (False, False),
    "loss = train()  # evaluate later": (False, False),
    "retrieval.run(medieval)": (False, False),
    "if (step + 1) % args.every == 0:\n    log()\n    evaluate(model)": (True, True),
    "if epoch % 5 == 0:\n    validate()": (True, False),
    "model.eval()": (True, False),
    "Arguments(eval_steps=500)": (True, True),
    "Arguments(eval_strategy='epoch')": (True, False),
    "torch.save(model.state_dict(), 'x')": (True, False),
}


@pytest.mark.parametrize("text", sorted(SPEAK))
def test_what_a_script_speaks_of(tmp_path, monkeypatch, text):
    monkeypatch.syspath_prepend(str(ROOT / "agent"))
    monkeypatch.setitem(sys.modules, "__main__", type(sys)("__main__"))
    sys.modules["__main__"].__file__ = str(tmp_path / "train.py")
    (tmp_path / "train.py").write_text(text)
    from plimsoll_agent.run import hints

    monkeypatch.setattr(hints, "_files", lambda main: {main})
    found = hints.Hints()
    assert (found.later, found.by_steps) == SPEAK[text]


MENTIONS = {
    "model.eval()": ["evaluation"],
    "model.train(False)": ["evaluation"],
    "def evaluate(): pass\nevaluate()": ["evaluation"],
    "def evaluate(): pass": [],
    "for x in self.val_loader: pass": ["evaluation"],
    "for x in loaders['test']: pass": ["evaluation"],
    "class Net:\n    def validation_step(self): pass": ["evaluation"],
    "trainer.validate(model)": ["evaluation"],
    "torch.save(model.state_dict(), 'x')": ["checkpoint"],
    "model.save_pretrained('x')": ["checkpoint"],
    # None of these is one.
    "with torch.no_grad(): ema.mul_(0.9)": [],
    "ctx.save_for_backward(x)": [],
    "model.gradient_checkpointing_enable()": [],
    "y = torch.utils.checkpoint.checkpoint(f, x)": [],
    "plt.savefig('loss.png')": [],
    "x = ast.literal_eval('1'); eval('2')": [],
    "a, b = train_test_split(x); interval = 3": [],
    "# model.eval()\n'evaluate, validate and save'": [],
    "best = copy.deepcopy(settings)": [],
    "action = dist.sample()": [],
}


@pytest.mark.parametrize("text", sorted(MENTIONS))
def test_what_the_code_of_a_script_has(tmp_path, monkeypatch, text):
    monkeypatch.syspath_prepend(str(ROOT / "agent"))
    monkeypatch.setitem(sys.modules, "__main__", type(sys)("__main__"))
    sys.modules["__main__"].__file__ = str(tmp_path / "train.py")
    (tmp_path / "train.py").write_text(text)
    from plimsoll_agent.run import hints

    monkeypatch.setattr(hints, "_files", lambda main: {main})
    assert hints.mentions() == MENTIONS[text]


SLOW = """
import plimsoll_agent.run.later as later, time
later.LONGEST_EVALUATION, later.LAST_SECONDS = (1.0, 1.0), 1.0
for epoch in range(50):
    n = 0
    for x, y in loader(16_000): step(x, y); n += 1
    print("epoch", n > 0, flush=True)
    net.eval()
    with torch.no_grad():
        %s
    net.train()
    print("evaluated", flush=True)
"""


@pytest.mark.parametrize(
    "evaluates, printed",
    [
        ("for x, y in loader(16_000): net(x.cuda()); time.sleep(0.1)", ["epoch True", "evaluated"]),
        ("while True: net(batch()[0]); time.sleep(0.1)", ["epoch True"]),
        ("kept = []\n    for x, y in loader(16_000): kept.append(net(x.cuda())); time.sleep(0.1)", ["epoch True", "evaluated"]),
    ],
    ids=["a loader", "its own batches", "a loader, and it stores results"],
)
def test_an_evaluation_that_takes_long_is_cut_short(run, evaluates, printed):
    r = run(TRAINS + SLOW % evaluates, stop="validation")
    assert (r.returncode, r.stdout.split("\n")[:-1], r.stderr) == (0, printed, "")
    later = r.process.end["later"]
    assert (r.process.end["why"], later["evaluation"], later["evaluation_cut"]) == ("steady", True, True)
    cut = later["cut_loop"]
    assert (cut is not None) == ("kept" in evaluates)
    if cut is not None:
        assert 0 < cut["rise"] and 3 < cut["taken"] < cut["of"] and "for x, y in loader" in cut["line"]["text"], cut


NEVER_EVALUATES = {
    "a penalty in each step": """
for _ in range(100_000):
    x, y = batch(); x.requires_grad_()
    opt.zero_grad()
    out = net(x)
    slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
    ((slope.norm(dim=1) - 1).pow(2).mean() + F.cross_entropy(out, y)).backward(); opt.step()
""",
    "a penalty every fourth step": """
for number in range(100_000):
    x, y = batch(); x.requires_grad_()
    opt.zero_grad()
    if number % 4 == 3:
        slope = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]
        slope.pow(2).sum().backward()
    F.cross_entropy(net(x), y).backward(); opt.step()
""",
    "two losses of one call, backward through each": """
for _ in range(100_000):
    x, y = batch()
    opt.zero_grad()
    out = net(x)
    F.cross_entropy(out, y).backward(retain_graph=True); out.pow(2).mean().backward(); opt.step()
""",
    "a Hessian's product in each step": """
for _ in range(100_000):
    x, y = batch()
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    first = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    sum(it.pow(2).sum() for it in first).backward(); opt.step()
""",
}


@pytest.mark.parametrize("what", sorted(NEVER_EVALUATES))
def test_a_call_that_a_backward_pass_goes_through_is_no_evaluation(run, what):
    r = run(TRAINS.partition("def evaluate")[0] + NEVER_EVALUATES[what], stop="validation")
    assert (r.returncode, r.stderr) == (0, "")
    end = r.process.end
    assert (end["why"], end["later"]["evaluation"]) == ("steady", False)


def test_a_penalty_does_not_hide_an_evaluation_with_gradients_of_one_batch(run):
    r = run(
        TRAINS.partition("def evaluate")[0]
        + """
for epoch in range(50):
    for x, y in loader(16_000):
        x = x.cuda().requires_grad_()
        opt.zero_grad()
        out = net(x)
        slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
        (slope.pow(2).mean() + out.mean()).backward(); opt.step()
    print("score", net(torch.randn(1024, 64, device="cuda")).mean().item())
""",
        stop="validation",
    )
    assert (r.returncode, r.stderr) == (0, "")
    assert r.process.end["later"]["evaluation"]


@pytest.mark.soak
def test_a_model_on_the_host_is_not_evaluated_on_the_device(run):
    r = run(
        TRAINS.partition("def evaluate")[0]
        + """
small = nn.Linear(8, 8).eval()
for number in range(100_000):
    step(*batch())
    if number % 5 == 4:
        with torch.no_grad(): small(torch.randn(4, 8))
""",
        stop="validation",
    )
    assert (r.returncode, r.stderr) == (0, "")
    assert not r.process.end["later"]["evaluation"]


FOLDS = """
import torch
def train(fold):
    net = torch.nn.Linear(64, 64).cuda()
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(30):
        opt.zero_grad(); net(torch.randn(4, 64).cuda()).sum().backward(); opt.step()
%s
"""
INLINE = """
import torch
for rate in (0.1, 0.2, 0.3):
    net = torch.nn.Linear(64, 64).cuda()
    opt = torch.optim.SGD(net.parameters(), rate)
    for _ in range(30):
        opt.zero_grad(); net(torch.randn(4, 64).cuda()).sum().backward(); opt.step()
"""
EPOCHS = """
import torch
net = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
def train(epoch):
    for _ in range(30):
        opt.zero_grad(); net(torch.randn(4, 64).cuda()).sum().backward(); opt.step()
for epoch in range(5): train(epoch)
"""


@pytest.mark.parametrize(
    "text, goes_on",
    [
        (FOLDS % "[train(fold) for fold in range(5)]", True),
        (FOLDS % "for fold in range(5): train(fold)", True),
        (INLINE, True),
        (FOLDS % "train(0)", False),
        (EPOCHS, False),
        (FOLDS.replace("range(30)", "range(10**6)") % "for fold in range(5): train(fold)", False),
    ],
)
def test_a_loop_that_makes_a_network_in_each_turn_is_followed_into_its_second(run, text, goes_on):
    steps = len(run(text, stop="validation").process.steps)
    assert (30 < steps < 50) is goes_on, steps


SAVES = """
import io, torch
wanted = torch.serialization.get_crc32_options()
numbers = {"a": torch.arange(4096.0), "b": torch.ones(64, device="cuda")}
torch.save(numbers, "x.pt")
try:
    torch.save(lambda: 0, io.BytesIO())
except Exception as error:
    print(type(error).__name__)
found = torch.load("x.pt", weights_only=True)
print(torch.equal(found["a"], numbers["a"]), found["b"].shape, torch.serialization.get_crc32_options() is wanted)
"""


def test_what_is_saved_is_read_again_and_torchs_options_stay(run):
    ran = run(SAVES, stop="until-exit")
    assert ran.stdout.splitlines()[-1] == "True torch.Size([64]) True", (ran.stdout, ran.stderr)
KEPT = FOLDS.replace("def train(fold):", "kept = []\ndef train(fold):").replace("    for _ in range(30):", "    kept.append(net)\n    for _ in range(30):").replace("64, 64", "1024, 1024").replace("randn(4, 64)", "randn(4, 1024)")
FED = KEPT.replace("for _ in range(30):", "for epoch in range(6):\n      for x in torch.utils.data.DataLoader(torch.randn(160, 1024), 4):").replace("torch.randn(4, 1024).cuda()", "x.cuda()")


@pytest.mark.parametrize("text", [KEPT, FED], ids=["steps", "epochs"])
@pytest.mark.parametrize("loop", ["[train(fold) for fold in range(50)]", "for fold in range(50): train(fold)"])
def test_what_a_turn_leaves_is_seen_in_the_third(run, text, loop):
    assert "kept.append" in text
    ahead = run(text % loop, stop="validation").process.end["ahead"]
    assert (len(ahead["turned_at"]), ahead["turns"], ahead["stage"]) == (2, 50, None)


@pytest.mark.parametrize(
    "text, turn",
    [
        (FOLDS.replace("range(30)", "range(10**6)") % "for fold in range(5): train(fold)", ("fold", 1, 5, 0)),
        (FOLDS.replace("range(30)", "range(10**6)") % "for fold in map(int, range(5)): train(fold)", ("fold", 1, None, 0)),
        (FOLDS % "for fold in range(5): train(fold)", None),
        # Another try, until one succeeds.
        (FOLDS.replace("range(30)", "range(10**6)") % "for size in (64, 32):\n    try:\n        train(size)\n        break\n    except RuntimeError: pass", None),
        (FOLDS.replace("range(30)", "range(10**6)") % "while True:\n    train(0)\n    break", None),
        (EPOCHS.replace("range(30)", "range(10**6)"), None),
    ],
)
def test_turns_that_were_not_seen_are_said(run, text, turn):
    stage = run(text, stop="validation").process.end["ahead"]["stage"]
    assert (stage and (stage["name"], stage["turn"], stage["turns"], stage["left_bytes"])) == turn


AFTER = """
import torch
net = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
loader = torch.utils.data.DataLoader(torch.randn(160, 64), 4)
for epoch in range(%d):
    for x in loader:
        opt.zero_grad(); net(x.cuda()).sum().backward(); opt.step()
def test(model):
    return [model(x.cuda()) for x in loader]
%s
"""


@pytest.mark.parametrize(
    "epochs, end, is_seen, is_said",
    [(20, "test(net)", True, False), (10**6, "test(net)", False, True), (20, "print(loader)", False, False), (10**6, "net(x.cuda())", False, True)],
)
def test_a_model_that_is_called_after_the_loops_is_seen_where_the_epochs_are_few(run, epochs, end, is_seen, is_said):
    process = run(AFTER % (epochs, end), stop="validation").process
    assert (process.end["why"] == "exit", process.end["after_loops"] is not None) == (is_seen, is_said)


STAGES = """
import torch
def train(net, opt, steps):
    for step in range(steps):
        opt.zero_grad(); net(torch.randn(4, 64, device="cuda")).sum().backward(); opt.step()
net = torch.nn.Linear(64, 64).cuda()
train(net, torch.optim.SGD(net.parameters(), 0.1), %s)
net = torch.nn.Linear(64, 128).cuda()
train(net, torch.optim.SGD(net.parameters(), 0.1), 10**6)
"""


@pytest.mark.parametrize("steps, is_seen", [("60", True), ("10**6", False)])
def test_a_second_stage_is_seen_where_few_steps_of_the_first_remain(run, steps, is_seen):
    end = run(STAGES % steps, stop="validation").process.end
    assert (60 < end["steps"] < 200, end["after_loops"] is None) == (is_seen, is_seen), end


PHASES = """
import torch
first = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(first.parameters(), 0.1)
for size in range(1, 6):
    opt.zero_grad(); first(torch.randn(4096 * size, 64, device="cuda")).sum().backward(); opt.step()
second = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(second.parameters(), 0.1)
for _ in range(10**6):
    opt.zero_grad(); second(first(torch.randn(4, 64, device="cuda"))).sum().backward(); opt.step()
"""


AFTERWARDS = {
    "second(torch.randn(400, 64, device='cuda'))": True,
    "test()": True,
    "for size in (1, 400): test(size)": True,
    "for size in (1, 400): first(torch.randn(size, 64, device='cuda')).sum().backward()": True,
    "": False,
    "for it in (1, 2): print(it, shown(it))": False,
    "for it in second.parameters(): print(it.numel())": False,
}


@pytest.mark.parametrize("end", AFTERWARDS)
def test_what_comes_after_the_loops_comes_after_the_one_that_the_run_has_come_to(run, end):
    functions = "def test(size=400): return second(torch.randn(size, 64, device='cuda'))\ndef shown(it): return '%5d' % it\n"
    program = functions + PHASES + end
    said = run(program, stop="steady").process.end["after_loops"]
    assert (said and said["line"]) == (len(program.splitlines()) if AFTERWARDS[end] else None)

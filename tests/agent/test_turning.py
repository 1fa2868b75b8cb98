"""What a later turn of a loop does that none so far did, read from the text while a step is on the stack."""

import contextlib
import sys
import types
from unittest import mock

import pytest
from plimsoll_agent.run import turning

FOUND = {
    "trained later": ("if epoch == 12:\n    train_all()", 12),
    "trained later, by a setting": ("if epoch >= args.unfreeze:\n    for p in parameters: p.requires_grad = True", 7),
    "larger pictures": ("size = 64 if epoch < 10 else 128", 10),
    "a chain": ("if epoch < 10: size = 64\nelif epoch < 20: size = 128\nelse: size = 256", 10),
    "a word of a call": ("make(data, batch_size=32 if epoch < 15 else 128)", 15),
    "a table": ("if epoch in sizes:\n    resize(sizes[epoch])", 5),
    "a list": ("resize([64, 64, 128, 128, 256, 256, 64][min(epoch, 6)])", None),
    "by index": ("resize(by_turn[epoch // 10])", 20),
    "a schedule of pairs": ("size = [size for since, size in [(0, 64), (10, 128), (20, 256)] if since <= epoch][-1]", 10),
    "how many have begun": ("grow(sum(1 for since in [4, 25] if epoch >= since))", 4),
    "a function": ("resize(size_for(epoch))", 8),
    "a function of a function": ("prepare(epoch)", 8),
    "a share of all": ("if epoch / args.epochs > 0.5: train_all()", 16),
    "the last one": ("if epoch == args.epochs - 1: test()", 29),
    "and what nobody knows": ("if epoch > 3 and losses[-1] < best: train_all()", 4),
    "a rate": ("lr = 0.1 if epoch < 10 else 0.01\nif epoch == 20:\n    for group in groups: group['lr'] *= 0.1", None),
    "a message": ("if epoch > 5: print('late'); save(model)", None),
    "a schedule": ("if epoch >= 4: scheduler.step()", None),
    "smaller": ("size = 128 if epoch < 10 else 64", None),
    "a share of a loss": ("weight = 0.0 if epoch < 5 else 1.0\nkl = min(1.0, epoch / 10)", None),
    "each few turns": ("if epoch % 10 == 9: test()", None),
    "it has begun": ("if epoch >= 1: train_all()", None),
    "it never comes": ("if epoch > 100: train_all()", None),
    "until then only": ("if epoch < 5: warm(model)", None),
    "another's rate": ("rate_for(epoch)", None),
}

SCRIPT = """
def size_for(epoch):
    if epoch < 8:
        return 64
    return 128

def prepare(turn):
    return resize(size_for(turn))

def rate_for(epoch):
    return 0.1 if epoch < 10 else 0.01

class args: epochs, unfreeze = 30, 7
sizes, by_turn = {5: 128, 20: 64}, [64, 64, 128]
for epoch in range(args.epochs):
%s
    for batch in [1, 2]:
        step(epoch)
"""


BATCHES = """
import contextlib
class torch: no_grad = contextlib.nullcontext
class Loader:
    __module__ = "torch.utils.data.dataloader"
    def __iter__(self): return self
    def __next__(self): return 1
def cycle(loader):
    while True:
        yield from loader
later, loader = (it for it in (1, 2, 3)), Loader()
batches, cycled = iter(loader), cycle(loader)
"""


def ahead(folder, text, at=2, script=SCRIPT, errors=()):
    file, found = folder / "train.py", []
    file.write_text(script % "\n".join("    " + line for line in text.splitlines()) if "%s" in script else script)

    def step(turn):
        if turn == at and not found:
            found.append(turning.ahead(False))
        return turn < at

    names = dict.fromkeys(("train_all", "resize", "make", "test", "warm", "save", "grow"), lambda *_, **__: None)
    script = {"step": step, "data": [0] * 4, "parameters": [], "groups": [], "losses": [1], "best": 2, "model": 0, "scheduler": type("S", (), {"step": lambda self: None})(), **names}
    module = types.ModuleType("train")
    vars(module).update(script, __file__=str(file))
    with mock.patch.dict(sys.modules, train=module), contextlib.suppress(*errors):
        exec(compile(file.read_text(), str(file), "exec"), vars(module))
    return found[0]


@pytest.mark.parametrize("text, first", FOUND.values(), ids=FOUND)
def test_the_first_turn_that_does_something_else(tmp_path, text, first):
    found = ahead(tmp_path, text)
    assert min((it.turn - 1 for it in found), default=None) == first, found
    assert all((it.now, it.turns, it.steps_a_turn) == (3, 30, 2) for it in found)


@pytest.mark.parametrize(
    "text, then",
    [
        ("if epoch in (10, 20):\n    args.stage += 1\n    resize(args.stage)", 20),
        ("if epoch == 10 or epoch == 25: resize(groups.pop())", 25),
        ("if epoch in (10, 20): test()", None),
        ("if epoch in (10, 20): args.rate *= 0.1", None),
        ("if epoch % 10 == 0: args.stage += 1", None),
        ("if epoch and epoch % 10 == 0:\n    args.stage *= 2\n    resize(args.stage)", 20),
        ("if epoch in (10, 20): told += 1\nprint(f'{told} times', told)", None),
        ("if epoch % 10 == 0: told += 2\nprint(told)", None),
        ("if epoch in (10, 20): size += 1\nresize(size)", 20),
        ("if epoch and epoch % 10 == 0: size *= 2\nresize(size)", 20),
        ("if epoch in (10, 20): size += 1\nis_large = 3 < size\nresize(is_large)", 20),
        ("if epoch in (10, 20):\n    size = next(later)\n    resize(size)", 20),
        ("if epoch in (10, 20): test(next(iter(loader)))", None),
        ("if epoch in (10, 20): test(next(batches))", None),
        ("if epoch in (10, 20): test(next(cycled))", None),
        ("if epoch in (10, 20):\n    with torch.no_grad(): test(next(later))", None),
    ],
)
def test_what_goes_on_from_what_came_before_is_seen_each_time(tmp_path, text, then):
    """The first of these turns, 10, is over."""
    script = SCRIPT.replace("unfreeze = 30, 7", "unfreeze, stage, rate = 30, 7, 0, 1.0").replace("for epoch in", "groups += [1, 2, 3]\ntold, size = 0, 1\n" + BATCHES + "for epoch in")
    found = ahead(tmp_path, "", at=12, script=script % "\n".join("    " + line for line in text.splitlines()))
    assert min((it.turn - 1 for it in found), default=None) == then, found


@pytest.mark.parametrize("text", ["if epoch > 20: raise ValueError('diverged')", "assert epoch < 21", "if epoch > 20:\n    print('late')\n    raise SystemExit(2)"])
def test_an_error_that_comes_later_is_no_memory(tmp_path, text):
    found = ahead(tmp_path, text + "\nif epoch == 9: train_all()", errors=(ValueError, AssertionError, SystemExit))
    assert [(it.turn - 1, it.raises) for it in found] == [(21, True), (9, False)]


def test_steps_that_are_counted(tmp_path):
    text = "step_now = 0\nwhile step_now < 9000:\n    if step_now > 5000: train_all()\n    step(step_now)\n    step_now += 1\n"
    (found,) = ahead(tmp_path, "", script=text)
    assert (found.name, found.to_come, found.steps_a_turn) == ("step_now", 4999, 1)


def test_a_counter_beside_the_loops(tmp_path):
    text = "seen = 0\nfor epoch in range(9):\n    for batch in data:\n        if seen >= 600: train_all()\n        if seen > 900: break\n        step(seen)\n        seen += 1\n"
    (found,) = ahead(tmp_path, "", script=text)
    assert (found.name, found.turn, found.turns, found.steps_a_turn) == ("seen", 601, None, 1)


def test_an_attribute_of_a_trainer(tmp_path):
    text = """
class Trainer:
    def fit(self):
        for epoch in range(20):
            self.current_epoch = epoch
            self.train()
    def train(self):
        for batch in data:
            if self.current_epoch >= 11: train_all()
            step(self.current_epoch)
Trainer().fit()
"""
    (found,) = ahead(tmp_path, "", script=text)
    assert (found.name, found.turn, found.turns, found.steps_a_turn) == ("epoch", 12, 20, 4)


CALLBACKS = """
class Callback:
    def on_epoch_begin(self, trainer, epoch): pass

class Unfreeze(Callback):
    def __init__(self, at): self.at = at
    def on_epoch_begin(self, trainer, epoch):
        if epoch == self.at: train_all()

class Grow:
    schedule = [(0, 1), (15, 8), (10, 4)]
    def on_epoch_begin(self, trainer, _):
        for since, size in sorted(self.schedule):
            if trainer.epoch >= since: trainer.size = size

class Log(Callback):
    def on_epoch_begin(self, trainer, epoch):
        if epoch > 3: print("late")

class Never(Callback):
    def on_epoch_begin(self, trainer, epoch):
        if epoch > 3: train_all()

class Mentioned:
    def by_nobody(self, epoch):
        if epoch > 3: train_all()

class Trainer:
    def __init__(self, callbacks): self.callbacks = callbacks
    def call(self, hook, *given):
        for it in self.callbacks: getattr(it, hook)(self, *given)
    def fit(self):
        for self.epoch in range(30):
            self.call("on_epoch_begin", self.epoch)
            step(self.epoch)
nobody = Mentioned()
Trainer([CALLBACK]).fit()
"""


@pytest.mark.parametrize("callback, first", [("Unfreeze(12)", 12), ("Unfreeze(1)", None), ("Unfreeze(50)", None), ("Grow()", 10), ("Log()", None)])
def test_what_a_trainer_of_the_scripts_own_calls_with_its_epoch(tmp_path, callback, first):
    found = ahead(tmp_path, "", script=CALLBACKS.replace("CALLBACK", callback))
    assert min((it.turn - 1 for it in found), default=None) == first, found


def test_a_larger_table_that_has_been_seen_is_nothing_more(tmp_path):
    assert ahead(tmp_path, "if epoch in sizes:\n    resize(sizes[epoch])", at=6) == []

"""An evaluation every so many steps is found in the text of the loop, and comes soon where its interval is a variable."""

import sys

import pytest
from harness import ROOT

LOOPS = {
    "a variable of the module": ("every = 50\nfor step in range(60):\n    seen()\n    if step % every == 0: evaluate()", 50, True),
    "an attribute": ("args = Namespace(every=50)\nfor step in range(60):\n    seen()\n    if (step + 1) % args.every == 0:\n        evaluate()", 50, True),
    "a key": ("cfg = {'every': 50}\nfor step in range(60):\n    seen()\n    if not step % cfg['every']: evaluate()", 50, True),
    "a variable of a function": (
        "def train(every):\n    for step in range(60):\n        seen()\n        if step and step % every == 0: evaluate()\n    return every\nassert train(50) == 50",
        50,
        True,
    ),
    "around a function that makes the step": ("every = 50\ndef one(): seen()\nfor step in range(60):\n    one()\n    if step % every == 0: evaluate()", 50, True),
    "the end of an interval": ("every = 50\nfor step in range(60):\n    seen()\n    if step % every == every - 1: evaluate()\n    loss = 1 / every", 50, True),
    "a number in the text": ("for step in range(60):\n    seen()\n    if step % 50 == 49: evaluate()", 50, False),
}


@pytest.fixture
def intervals(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "agent"))
    from plimsoll_agent.run import intervals

    return intervals


@pytest.mark.parametrize("what", sorted(LOOPS))
def test_an_evaluation_comes_soon_and_its_interval_is_what_it_was(intervals, tmp_path, what):
    from argparse import Namespace

    text, length, is_variable = LOOPS[what]
    steps, evaluations, short = [], [], []

    def seen():
        steps.append(len(steps))
        if steps[-1] == 3:
            (it,) = intervals.of_this_step()
            short.append((it._length, it.to_come, it.shorten(), it))
        if steps[-1] == 5:
            short[0][3].restore()

    script = tmp_path / "train.py"
    script.write_text(text)
    exec(compile(text, str(script), "exec"), {"seen": seen, "evaluate": lambda: evaluations.append(steps[-1]), "Namespace": Namespace})
    (found,) = short
    assert found[:3] == (length, found[1], is_variable) and found[1] in (length - 3, length - 4)
    line = found[3].line
    assert line["text"].startswith("if ") and line["file"] == str(script)
    before = [0] if 0 in evaluations else []
    assert evaluations == (before + [3, 4] + ([49] if "+ 1" in text or "every - 1" in text else [50]) if is_variable else [49])


MORE_THAN_INTERVALS = {
    "samples": "for step in range(60):\n    seen()\n    rows = data[:args.every]\n    if step % args.every == 0: evaluate()",
    "samples of a function": "def draw(args): return data[:args.every]\nfor step in range(60):\n    draw(args)\n    seen()\n    if step % args.every == 0: evaluate()",
    "accumulation": "for step in range(60):\n    if step % args.every == 3: seen()\n    if step % args.every == 0: evaluate()",
    "set by the loop": "every = args.every\nfor step in range(60):\n    seen()\n    if step % every == 0: evaluate()\n    every += 1",
    "never with 1": "for step in range(60):\n    seen()\n    if step % args.every == 7: evaluate()",
}


@pytest.mark.parametrize("what", sorted(MORE_THAN_INTERVALS))
def test_a_variable_that_is_more_than_an_interval_stays_as_it_is(intervals, tmp_path, what):
    from argparse import Namespace

    args, found = Namespace(every=50), []

    def seen():
        found.extend((it.shorten(), args.every) for it in intervals.of_this_step() if not found)

    script = tmp_path / "train.py"
    script.write_text(MORE_THAN_INTERVALS[what])
    exec(compile(MORE_THAN_INTERVALS[what], str(script), "exec"), {"seen": seen, "evaluate": lambda: None, "args": args, "data": [0] * 60})
    assert found == [(False, 50)]


OWNERS = {
    "returned": ("", 50),
    "raised": ("        if step == 4: raise RuntimeError\n", 50),
    "set meanwhile": ("        args.every = 20\n", 20),
}


@pytest.mark.parametrize("what", sorted(OWNERS))
def test_an_interval_is_restored_when_its_loop_is_over(intervals, tmp_path, what):
    from argparse import Namespace

    args, found = Namespace(every=50), []

    def seen():
        if not found:
            (it,) = intervals.of_this_step()
            found.append((it, it.shorten(), args.every))

    line, after = OWNERS[what]
    # The line that sets it is of another function, so that the loop does not show it.
    line, elsewhere = ("", line.strip()) if "args.every" in line else (line, "pass")
    text = f"def change(): {elsewhere}\nchanges = [change]\ndef train():\n    for step in range(6):\n        seen()\n        changes[0]()\n{line}        if step % args.every == 0: evaluate()\ntry: train()\nexcept RuntimeError: pass"
    script = tmp_path / "train.py"
    script.write_text(text)
    exec(compile(text, str(script), "exec"), {"seen": seen, "evaluate": lambda: None, "args": args})
    it, is_short, meanwhile = found[0]
    it.restore()
    assert (is_short, meanwhile, args.every) == (True, 1, after)


def test_a_branch_in_another_waits_for_that_one_too(intervals, tmp_path):
    text, found = "for step in range(60):\n    seen()\n    if step > 55:\n        if step % 50 == 0: evaluate()", []
    script = tmp_path / "train.py"
    script.write_text(text)
    exec(compile(text, str(script), "exec"), {"seen": lambda: found.extend(intervals.of_this_step()), "evaluate": lambda: None})
    assert found and all(it.has_conditions for it in found)


EPOCHS = {
    "a loop inside": ("for e in range(60):\n    for _ in range(4): seen()\n    if e % 50 == 0: evaluate()", True),
    "a function with a loop": ("def one():\n    for _ in range(4): seen()\nfor e in range(60):\n    one()\n    if e % 50 == 0: evaluate()", True),
    "a number": ("for epoch in range(60):\n    for _ in range(4): seen()\n    if epoch % 50 == 49: evaluate()", True),
    "a number, and each is a step": ("for epoch in range(60):\n    seen()\n    if epoch % 50 == 49: evaluate()", False),
    "a variable that says so": ("every = 50\nfor epoch in range(60):\n    for _ in range(4): seen()\n    if epoch % every == 0: evaluate()", True),
    "a function without a loop": ("for _ in range(4): pass\ndef one(): seen()\nfor e in range(60):\n    one()\n    if e % 50 == 0: evaluate()", False),
}


@pytest.mark.parametrize("what", sorted(EPOCHS))
def test_an_interval_of_epochs_is_none_of_steps(intervals, tmp_path, what):
    (text, is_of_epochs), found = EPOCHS[what], []
    script = tmp_path / "train.py"
    script.write_text(text)
    exec(compile(text, str(script), "exec"), {"seen": lambda: found.extend(intervals.of_this_step()), "evaluate": lambda: None})
    assert found and all((it.is_of_epochs, it.to_come is None) == (is_of_epochs, is_of_epochs) for it in found)


@pytest.mark.parametrize("text", ["epoch % 50 == 49", "epoch and epoch % 50 == 0", "(epoch + 1) % 50 == 0"])
def test_a_branch_that_came_is_not_waited_for(intervals, tmp_path, text):
    text = f"for epoch in range(60):\n    seen()\n    if {text}: evaluate()"
    found, passed, came = [], [], []

    def seen():
        if not found:
            found.extend(intervals.of_this_step())
        passed.append(found[0].has_passed())

    script = tmp_path / "train.py"
    script.write_text(text)
    exec(compile(text, str(script), "exec"), {"seen": seen, "evaluate": lambda: came.append(len(passed))})
    assert passed.index(True) in (came[0], came[0] + 1) and all(passed[passed.index(True) :])


NONE = {
    "a report": "for step in range(9):\n    seen()\n    if step % 5 == 0: print(step)",
    "the step itself": "for step in range(9):\n    if step % 1 == 0:\n        seen()\n        evaluate()",
    "accumulation": "every = 3\nfor step in range(9):\n    if step % every == 0:\n        seen(); evaluate()",
    "turned off": "args = {'do': False}\nfor step in range(9):\n    seen()\n    if args['do'] and step % 5 == 0: evaluate()",
    "turned off around": "do = False\nfor step in range(9):\n    seen()\n    if do:\n        if step % 5 == 0: evaluate()",
    "elsewhere": "for step in range(9): seen()\nfor step in range(9):\n    if step % 5 == 0: evaluate()",
    "a text": "for step in range(9):\n    seen()\n    if '%d' % step == '5': evaluate()",
}


@pytest.mark.parametrize("what", sorted(NONE))
def test_what_is_no_interval(intervals, tmp_path, what):
    found = []
    script = tmp_path / "train.py"
    script.write_text(NONE[what])
    exec(compile(NONE[what], str(script), "exec"), {"seen": lambda: found.extend(intervals.of_this_step()), "evaluate": lambda: None})
    assert found == []


def test_a_budget_goes_on_slowly_while_others_have_the_processor(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "agent"))
    from plimsoll_agent.run import effort

    clock = {"wall": 0.0, "own": 0.0}
    monkeypatch.setattr(effort, "time", type(sys)("time"))
    effort.time.monotonic, effort.time.process_time = (lambda: clock["wall"]), (lambda: clock["own"])
    it = effort.Effort()
    for wall, own, seconds in ((10.0, 9.0, 9.0), (10.0, 30.0, 10.0), (18.0, 10.0, 10.0), (100.0, 10.0, 50.0)):
        clock.update(wall=wall, own=own)
        assert it.seconds() == seconds


STORES = {
    "a list": ("if step % 50 == 0: kept.append(out)", 50),
    "an attribute in a condition with more": ("if step and step % 20 == 0 and step < 900: self.bank = out * 2", 20),
    "a function of the file": ("if step % 30 == 0: log_metrics(logs, out)", 30),
    "numbers": ("if step % 50 == 0: kept.append(out.item())", None),
    "what goes to the host": ("if step % 50 == 0: kept.append(out.cpu())", None),
    "what is printed": ("if step % 50 == 0: print(step, float(out))", None),
    "an evaluation": ("if step % 50 == 0: evaluate(kept)", None),
}


@pytest.mark.parametrize("what", sorted(STORES))
def test_a_branch_that_stores_something_every_so_many_steps_is_found(intervals, tmp_path, what):
    branch, every = STORES[what]
    functions = "def log_metrics(logs, out): logs['z'].append(out)\ndef evaluate(kept):\n    it = 1\n    kept.append(it)\n"
    text = functions + "for step in range(4):\n    out = seen()\n    " + branch
    found = []

    class Out(float):
        item = cpu = lambda self: 0

    script = tmp_path / "train.py"
    script.write_text(text)
    names = {"kept": [], "logs": {"z": []}, "self": type("It", (), {}), "seen": lambda: found.append(intervals.longest_that_stores()) or Out(1)}
    exec(compile(text, str(script), "exec"), names)
    assert {it and it[0] for it in found} == {every}, found
    assert every is None or found[0][1]["text"] == branch


LOADS = {
    "the best checkpoint": ("for step in range(4): seen()\nif False: state = torch.load(path)", 2),
    "a function that is called later": ("for step in range(4): seen()\ndef other():\n    return torch.load(path)", None),
    "into host memory": ("for step in range(4): seen()\nif False: state = torch.load(path, map_location='cpu')", None),
    "before the loop": ("if False: state = torch.load(path)\nfor step in range(4): seen()", None),
    "after a function that trains": ("def train():\n    for step in range(4): seen()\ntrain()\nif False: model = AutoModel.from_pretrained(path)", 4),
}


@pytest.mark.parametrize("what", sorted(LOADS))
def test_weights_that_are_loaded_after_the_loops_are_found(intervals, tmp_path, what):
    text, line = LOADS[what]
    found = []
    script = tmp_path / "train.py"
    script.write_text(text)
    exec(compile(text, str(script), "exec"), {"seen": lambda: found.append(intervals.loads_after_the_loops())})
    assert {it and it["line"] for it in found} == {line}, found


COMPUTES = {
    "a test": ("for step in range(4): seen()\ntest(net)", 2),
    "an average of the weights, in each step": ("def one():\n    seen()\n    average(net)\nfor step in range(4): one()", None),
    "statistics of each epoch": ("def epoch():\n    for step in range(4): seen()\n    test(net)\nfor number in range(3): epoch()", None),
    "results of a comprehension": ("def decode():\n    return [seen() for it in range(4)]\nfor clip in range(2):\n    decode()\n    net(clip)", None),
    "a test behind a function that trains": ("def train():\n    for step in range(4): seen()\ntrain()\ntest(net)", 4),
}


@pytest.mark.parametrize("what", sorted(COMPUTES))
def test_only_what_stands_behind_all_loops_comes_after_them(intervals, tmp_path, what):
    torch = pytest.importorskip("torch")
    text, line = COMPUTES[what]
    found = []
    script = tmp_path / "train.py"
    script.write_text("def test(model): pass\ndef average(model): pass\n" + text)
    net = torch.nn.Identity()
    exec(compile(script.read_text(), str(script), "exec"), {"net": net, "seen": lambda: found.append(intervals.computes_after_the_loops())})
    assert {it and it["line"] - 2 for it in found} == {line}, found

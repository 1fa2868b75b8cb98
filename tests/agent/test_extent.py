"""How many steps the loops of a script come to, read while a step of them is on the stack."""

import sys

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "agent"))
from plimsoll_agent.run.extent import of_this_step  # noqa: E402


def in_all(first, every):
    """What is said at the 3rd step, and at the 8th, of a loop whose turns are steps from `first` on, one of so many."""
    steps, said, before = 0, [], None
    for turn in range(20000):
        if turn < first or (turn - first + 1) % every:
            continue
        steps += 1
        if steps in (3, 8):
            ahead, done = of_this_step(steps, before)
            before = before or (steps, done)
            said.append(ahead["steps"])
            if steps == 8:
                return said
    return said


@pytest.mark.parametrize("every", [1, 4])
def test_each_step_of_several_turns_counts_once(every):
    assert in_all(0, every) == [20000 // every, 20000 // every]


def test_a_range_of_more_than_python_counts_has_no_end(tmp_path):
    script, said = tmp_path / "train.py", []
    script.write_text("for step in range(10**20):\n    if seen(step): break\n")

    def seen(step):
        if 3 <= step:
            said.append(of_this_step(step, None)[0]["steps"])
        return bool(said)

    exec(compile(script.read_text(), str(script), "exec"), {"seen": seen})
    assert said == [None]


@pytest.mark.parametrize("every", [1, 4])
def test_turns_before_the_first_step_are_none(every):
    first, second = in_all(1000, every)
    assert first < 100 and second == pytest.approx(19000 / every, abs=1)


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("first", [0, 100])
@pytest.mark.parametrize("counts_steps", [True, False])
def test_a_while_loop_that_another_one_counts_for_says_steps_and_no_epochs(tmp_path, every, counts_steps, first):
    """`while step < 400: for batch in loader: ...; step += 1`: 400 steps or batches, not 400 epochs; fewer where a run goes on from a checkpoint."""
    text = f"""
done = turn = 0
step = {first}
while step < 400:
    for batch in loader:
        turn += 1
        if turn % {every} == 0:
            done += 1
            seen(done)
            step += {int(counts_steps)}
        step += {int(not counts_steps)}
        if step >= 400: break
"""
    script, said = tmp_path / "train.py", []
    script.write_text(text)

    def seen(steps):
        if steps in (3, 8):
            ahead, counted = of_this_step(steps, before[-1])
            before.append((steps, counted))
            said.append(ahead)

    before = [None]
    exec(compile(text, str(script), "exec"), {"loader": list(range(50)), "seen": seen})
    left = 400 - first
    assert said[1] == {"epochs": None, "steps": left if counts_steps else left // every, "turns": None, "stage": None, "anew": None}
    assert first or said[0] == said[1]


@pytest.mark.parametrize(
    "outer, inner, expected",
    [
        ("for size in (64, 128, 256):", "draw(size)", ("size", 1, 3)),
        ("for stage in range(5):", "draw(sizes[stage])", ("stage", 1, 5)),
        ("for stage in range(5):", "draw(64); print(stage, f'{stage}'); stage % 2 == 0", None),
        ("for epoch in range(5):", "draw(epoch)", None),
        ("for size in (64,):", "draw(size)", None),
        ("for turn in range(500):", "draw(turn)", None),
    ],
)
def test_a_loop_whose_variable_the_steps_use_is_a_stage(tmp_path, outer, inner, expected):
    text = f"{outer}\n    for step in range(20):\n        {inner}\n        seen(step)\n"
    script, said = tmp_path / "train.py", []
    script.write_text(text)

    def seen(step):
        if step == 3:
            said.append(of_this_step(4)[0]["stage"])

    exec(compile(text, str(script), "exec"), {"draw": lambda size: size, "sizes": list(range(9)), "seen": seen})
    first = said[0]
    assert (first and (first["name"], first["turn"], first["turns"])) == expected
    assert first is None or first["line"]["line"] == 1
    assert expected is None or said[-1] is None, "the last turn has none behind it"


@pytest.mark.parametrize(
    "used, expected",
    [
        ("horizon = 10 + epoch\n        for _ in range(horizon): pass", "epoch"),
        ("length = min(64, 8 * epoch)\n        x[:length]", "epoch"),
        ("zeros(4, epoch + 1)", "epoch"),
        ("full((4, 2), epoch)", None),
        ("x[step * 4 : (step + 1) * 4]", None),
        ("x[step * 4 : min(step * 4 + 4, 90)]", None),
        ("for i in range(4 * epoch, 4 * epoch + 4): pass", None),
        ("rate = 0.1 * 0.9**epoch\n        draw(rate)", None),
        ("noise = draw(epoch)\n        x[:noise]", None),
        ("if epoch % 2: x[:2]", None),
        ("x[: 8 + step // 2]", "step"),
        ("x[: min(8 + step, 9)]", None),
        ("length = min(8 * (step + 1), 24)\n        zeros(4, length)", None),
    ],
)
def test_a_loop_whose_variable_sets_a_size_is_a_stage(tmp_path, used, expected):
    text = f"for epoch in range(200):\n    for step in range(20):\n        {used}\n        seen(step)\n"
    script, said = tmp_path / "train.py", []
    script.write_text(text)

    def seen(step):
        if step == 3 and not said:
            said.append(of_this_step(4)[0]["stage"])

    names = {"draw": int, "zeros": lambda *_: 0, "full": lambda *_: 0, "x": list(range(99)), "seen": seen}
    exec(compile(text, str(script), "exec"), names)
    assert (said[0] and said[0]["name"]) == expected


COMPREHENSION = """
def train(fold):
    for step in range(20): seen(step)
    return fold
def folds(n):
    return %s
folds(30)
"""


@pytest.mark.parametrize(
    "text, steps",
    [
        ("[train(fold) for fold in range(n)]", 600),
        ("{fold: train(fold) for fold in range(n)}", 600),
        ("sum(train(fold) for fold in range(n))", 600),
        ("[train(rate) for rate in (1, 2) for fold in range(n)]", 1200),
        ("train([it for it in range(n)])", 20),
        ("[it for it in range(n)] and train(0)", 20),
    ],
)
def test_a_comprehension_is_a_loop(tmp_path, text, steps):
    script, said = tmp_path / "train.py", []
    script.write_text(COMPREHENSION % text)

    def seen(step):
        if len(said) < 5:
            said.append(of_this_step(len(said) + 1, None)[0]["steps"])

    exec(compile(script.read_text(), str(script), "exec"), {"seen": seen})
    assert said[2:] == [steps] * 3

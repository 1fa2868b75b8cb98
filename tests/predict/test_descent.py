"""Optimizers that solve inside their step: how far they go is decided by numbers that nobody computes."""

import json

SCRIPT = """
import json, sys, torch

torch.set_default_dtype(getattr(torch, sys.argv[1]))
search = None if sys.argv[2] == "fixed" else sys.argv[2]
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)).cuda()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=int(sys.argv[3]), max_eval=10**6, history_size=9, line_search_fn=search)
x, y = torch.randn(512, 64).cuda(), torch.randn(512, 1).cuda()
losses = []

def closure():
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    losses.append(loss.item())
    return loss

kept = []
for _ in range(3):
    optimizer.step(closure)
    kept.append(len(next(iter(optimizer.state.values()))["old_dirs"]))
print(json.dumps([kept, len(losses), losses == sorted(losses, reverse=True)]))
"""


def ran(plimsoll, *arguments):
    (plimsoll.folder / "descend.py").write_text(SCRIPT)
    run = plimsoll.predict("descend.py", *arguments, options=("--gpu", "rtx3090", "--until-exit"))
    assert run.code == 0, run
    assert "agent-failed" not in {it["code"] for it in run.report["notes"]}, run.report["notes"]
    assert "L-BFGS" in " ".join(it["text"] for it in run.report["notes"])
    (line,) = (it for it in run.stdout.splitlines() if it.startswith("[["))
    return json.loads(line)


def test_the_history_of_l_bfgs_fills_over_its_steps(plimsoll):
    # Four turns a step, of which the first has no direction to keep yet.
    kept, calls, fell = ran(plimsoll, "float32", "strong_wolfe", "4")
    assert kept == [3, 7, 9]
    assert calls == 3 * (1 + 4), "each line search takes its first step"
    assert fell


def test_without_a_line_search_too_and_in_double_precision(plimsoll):
    kept, calls, fell = ran(plimsoll, "float64", "fixed", "4")
    assert kept == [3, 7, 9]
    assert calls == 3 * 4
    assert fell


def test_a_step_that_may_take_forever_ends_when_nothing_grows_any_more(plimsoll):
    kept, calls, _ = ran(plimsoll, "float32", "strong_wolfe", "100000")
    assert kept == [9, 9, 9]
    assert calls < 3 * 40

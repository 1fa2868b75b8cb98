"""What a script has just set, and what it checks, among values that a phantom does not compute."""

import pytest

HEAD = """
import torch
net = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.Adam(net.parameters())
def spectrum(n):
    f = net(torch.randn(n, 64, device="cuda")).abs().mean(1)
    f[0] = 0
    return f
MASK = torch.zeros(30000, device="cuda")
MASK[:500] = 1
"""

CHOICES = {
    "topk of many": "top = spectrum(300).topk(5)[1].tolist(); assert 0 not in top, top",
    "topk of few": "top = spectrum(20).topk(5)[1].tolist(); assert 0 not in top, top",
    "topk of rows, some of them masked": "f = net(torch.randn(40, 64, device='cuda')); f[:, 3:9] = float('-inf'); top = f.topk(4)[1].flatten().tolist(); assert not set(top) & set(range(3, 9)), top",
    "topk of a product with a mask": "top = (spectrum(30000) * MASK).topk(400)[1]; assert top.max() < 500, top",
    "topk of halves, masked": "top = (spectrum(30000).half().sigmoid() * MASK.half()).topk(400)[1]; assert top.max() < 500, top",
    "topk of rows, all masked alike": "top = (net(torch.randn(40, 64, device='cuda')).exp() * MASK[480:544]).topk(9)[1]; assert top.max() < 20, top",
    "topk of a sum with a mask": "top = (spectrum(30000) + MASK.log()).topk(400)[1]; assert top.max() < 500, top",
    "topk of what is scattered into zeros": "at = torch.arange(500, device='cuda'); top = torch.zeros(30000, device='cuda').scatter(0, at, spectrum(500)).topk(400)[1]; assert top.max() < 500, top",
    "the first of many that are masked and sorted": "order = spectrum(30000).masked_fill(MASK == 0, -1e9).argsort(descending=True)[:400]; assert order.max() < 500 and len(order.unique()) == 400, order",
    "the first of many that are chosen and sorted": "order = torch.where(MASK > 0, spectrum(30000), torch.full_like(MASK, -1e9)).sort(descending=True)[1][:400]; assert order.max() < 500, order",
    "topk of masked scores after softmax": "top = spectrum(30000).masked_fill(MASK == 0, float('-inf')).softmax(0).topk(400)[1]; assert top.max() < 500, top",
    "words that are drawn from masked scores": "f = net(torch.randn(40, 64, device='cuda')); f[:, 3:60] = float('-inf'); drawn = torch.multinomial(f.softmax(-1), 5); assert ((drawn < 3) | (drawn >= 60)).all(), drawn",
    "the best word by its logarithm, in halves": "f = net(torch.randn(9, 64, device='cuda')).half().repeat(1, 40); f[:, 9:] = float('-inf'); best = f.log_softmax(-1).argmax(-1); assert best.max() < 9, best",
    "a word that is drawn by a temperature": "f = net(torch.randn(9, 64, device='cuda')).half().repeat(1, 40); f[:, 9:] = float('-inf'); drawn = torch.multinomial((f.float() / 0.8).softmax(-1), 1); assert drawn.max() < 9, drawn",
    "a word that is drawn again and again": "f = spectrum(30000).masked_fill(MASK == 0, -1e9).softmax(0); drawn = torch.multinomial(f, 50, replacement=True); assert drawn.max() < 500, drawn",
    "the best of few, by which something is divided": "period = 24 // int(spectrum(25).argmax()); assert 0 < period",
    "the best of many": "at = int(spectrum(400).max(0)[1]); assert at, at",
    "the first of those that are sorted": "order = spectrum(200).sort(descending=True)[1][:5].tolist(); assert 0 not in order, order",
    "the smallest distance that was set to infinity": "d = net(torch.randn(30, 64, device='cuda')).pow(2).sum(1); d[4] = float('inf'); near = d.topk(3, largest=False)[1].tolist(); assert 4 not in near, near",
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("what", sorted(CHOICES))
def test_what_was_just_set_to_nothing_is_not_among_the_best(plimsoll, what):
    plimsoll.script(HEAD + f"for i in range(60):\n    {CHOICES[what]}\n    net(torch.randn(8, 64, device='cuda')).sum().backward(); opt.step(); opt.zero_grad()")
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090", "--until-exit"))
    assert ran.code == 0 and ran.report["steps_seen"] == 60, (ran.stderr[-2000:], ran.report)


CHECKS = {
    "an assertion": "assert h + net.weight.abs().mean() > h, 'underflow'",
    "an assertion in parts": "assert (h > -1) and net.weight.abs().max() < 100",
    "an error that is raised": "if not (net.weight.abs() < 100).all(): raise ValueError('weights explode')",
    "an assertion that something is not": "assert not (net.weight > 100).any()",
    "an error that is raised where something is": "if (net.weight > 100).any(): raise ValueError('weights explode')",
}


@pytest.mark.parametrize("what", sorted(CHECKS))
def test_a_check_of_what_nobody_computes_holds(plimsoll, what):
    plimsoll.script(HEAD + f"h = torch.tensor(0.5).cuda()\nfor i in range(6):\n    {CHECKS[what]}\n    net(torch.randn(8, 64, device='cuda')).sum().backward(); opt.step(); opt.zero_grad()")
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090", "--until-exit"))
    assert ran.code == 0 and ran.report["steps_seen"] == 6, ran


def test_no_number_is_advised_for_a_truth_value_that_a_loop_waits_for(plimsoll):
    plimsoll.script(HEAD + "accepts = net.weight.abs().max() < 1e-9\nprint([0][1 - bool(accepts)])")
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090"))
    assert ran.code == 2 and "=NUMBER" not in ran.stderr, ran


LOOPS = {
    "a step that is accepted": """
    t, h, end, y = torch.zeros((), device="cuda"), torch.full((), 0.1, device="cuda"), torch.ones((), device="cuda"), x
    while t < end:
        h = torch.minimum(h, end - t)
        k = net(y)
        error = (h * (net(y + h * k) - k)).abs().max()
        if error < 1:
            t, y = t + h, y + h * k
        h = h * (0.9 * error.pow(-0.5)).clamp(0.2, 5.0)
""",
    "a time that is a tensor": """
    t, y = torch.zeros((), device="cuda"), x
    while t.item() < 1.0:
        k = net(y)
        t, y = t + 0.1 / k.abs().max(), y + 0.1 * k
""",
    "a search along a line": """
    step, y = 1.0, net(x)
    while (y - step).pow(2).mean().item() > y.pow(2).mean().item() - 1e-4 * step * y.abs().mean().item():
        step /= 2
        if step < 1e-10: raise RuntimeError("line search failed")
""",
    "a tolerance": """
    y, done = x, False
    while not done:
        y = net(y)
        done = bool((y - x).abs().max() > 1)
""",
}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("what", sorted(LOOPS))
def test_a_loop_that_waits_for_what_nobody_computes_comes_to_its_end(plimsoll, what):
    plimsoll.script(HEAD + f"for i in range(4):\n    x = torch.randn(8, 64, device='cuda')\n{LOOPS[what]}\n    y.sum().backward(); opt.step(); opt.zero_grad()")
    ran = plimsoll.predict("train.py", options=("--gpu", "rtx3090", "--until-exit"))
    assert ran.code == 0 and ran.report["steps_seen"] == 4, ran
    assert any("`while` loop at train.py" in it["text"] for it in ran.report["notes"]), ran.report["notes"]

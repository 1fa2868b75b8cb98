"""Windows that overlap are noted with their size and how often they have a value; blocks that do not overlap are not."""

import pytest

HEAD = "import torch, torch.nn as nn, torch.nn.functional as F\nx = torch.randn(8, 16, 64, 64, device='cuda')\n"
WHOLE = 8 * 16 * 64 * 64 * 4


@pytest.mark.parametrize(
    "text, copies, size",
    [
        ("F.unfold(x, 3, padding=1)", 9, 9 * WHOLE),
        ("nn.Unfold(5, padding=2)(x)", 25, 25 * WHOLE),
        ("with torch.no_grad(): F.unfold(x.requires_grad_(), 3, padding=1)", 9, 9 * WHOLE),
        ("torch.randn(1 << 20).unfold(0, 256, 32).cuda()", 8, ((1 << 20) - 256 + 32) // 32 * 256 * 4),
        ("x.unfold(2, 8, 2).unfold(3, 8, 2)", 13, 8 * 16 * 29 * 29 * 64 * 4),
        ("x.unfold(dimension=3, size=16, step=4)[..., 0].sum()", 3, 8 * 16 * 64 * 13 * 16 * 4),
    ],
)
def test_windows_that_overlap_are_noted(run, text, copies, size):
    found = run(HEAD + text).process.all("unfolded")
    assert (found[-1]["copies"], found[-1]["bytes"]) == (copies, size)


@pytest.mark.parametrize(
    "text",
    [
        "F.unfold(x, 4, stride=4)",
        "x.unfold(2, 8, 8).unfold(3, 8, 8).contiguous()",
        "x[:, :1, :8, :8].unfold(3, 4, 1)",
        "x.unfold(3, 64, 1)",
    ],
)
def test_blocks_that_do_not_overlap_are_not(run, text):
    ran = run(HEAD + text)
    assert ran.process.all("unfolded") == [] and ran.process.notes == []


def test_a_compiled_function_compiles_as_without_us(run):
    text = """
from torch._dynamo.testing import CompileCounter
counted = CompileCounter()
made = torch.compile(lambda it: F.unfold(it, 3).sum() + it.unfold(3, 3, 1).sum(), backend=counted, fullgraph=True)
made(x), made(torch.randn(8, 16, 32, 32, device="cuda"))
print(counted.frame_count, counted.op_count)
"""
    ran, bare = run(HEAD + text), run(HEAD + text, agent=False)
    assert ran.stdout == bare.stdout and ran.stdout.split(), (ran.stdout, ran.stderr[-800:], bare.stderr[-800:])

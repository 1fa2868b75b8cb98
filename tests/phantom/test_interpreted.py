"""Triton's kernels over integers that are known are interpreted; what depends on unknown numbers is unknown."""

import pytest

pytest.importorskip("triton")

# Triton reads a kernel's source from its file.
SCRIPT = '''
import torch, triton, triton.language as tl

@triton.jit
def doubled(x):
    return x * 2

@triton.jit
def count(done_ptr, length_ptr, limit_ptr, token_ptr, last_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    length = tl.load(length_ptr + i)
    is_short = length < tl.load(limit_ptr + i)
    done = tl.where(is_short, 0, tl.load(done_ptr + i))
    tl.store(done_ptr + i, doubled(done))
    tl.store(last_ptr + i, tl.load(token_ptr + i))
    block = tl.arange(0, BLOCK)
    tl.store(limit_ptr + 4 + i * BLOCK + block, block + i, mask=block < 3)

done = torch.ones(4, dtype=torch.int32, device="cuda")
length = torch.tensor([5, 9, 7, 8], dtype=torch.int32).cuda()
limit = torch.cat([torch.tensor([6, 9, 9, 3], dtype=torch.int32), torch.full((16,), -1, dtype=torch.int32)]).cuda()
token = torch.randn(4, device="cuda").to(torch.int32)
last = torch.zeros(4, dtype=torch.int32, device="cuda")
count[(4,)](done, length, limit, token, last, BLOCK=4)
print(done.tolist(), limit[4:].tolist())
'''


def test_known_integers_are_computed_and_others_are_unknown(plimsoll):
    plimsoll.script(SCRIPT)
    ran = plimsoll.run("predict", "--gpu", "h100-80g", "--until-exit", "--", "train.py")
    assert "[0, 2, 0, 2] [0, 1, 2, -1, 1, 2, 3, -1, 2, 3, 4, -1, 3, 4, 5, -1]" in ran.stdout, ran.stdout + ran.stderr


LOOPS = """
import torch, triton, triton.language as tl

@triton.jit
def gathered(rows_ptr, start_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    first, end = tl.load(start_ptr + i), tl.load(start_ptr + i + 1)
    total = 0
    for j in range(first, end):
        total += tl.load(rows_ptr + j)
    for at in range(0, end - first, BLOCK):
        block = at + tl.arange(0, BLOCK)
        tl.store(out_ptr + i * stride + block, total, mask=block < end - first)

rows = torch.arange(1, 8, dtype=torch.int32).cuda()
start = torch.tensor([0, 3, 3, 7], dtype=torch.int32).cuda()
out = torch.zeros(3, 4, dtype=torch.int32, device="cuda")
gathered[(3,)](rows, start, out, 4, BLOCK=2)
print(out.tolist())
"""


def test_loops_whose_length_is_loaded_are_counted(plimsoll):
    plimsoll.script(LOOPS)
    ran = plimsoll.run("predict", "--gpu", "h100-80g", "--until-exit", "--", "train.py")
    assert "[[6, 6, 6, 0], [0, 0, 0, 0], [22, 22, 22, 22]]" in ran.stdout, ran.stdout + ran.stderr


TOO_MANY = LOOPS.replace("print(", """many = torch.zeros(8000, dtype=torch.int32).cuda()
gathered[(1999,)](rows, many, many, 4, BLOCK=2)
out.zero_()
gathered[(3,)](rows, start, out, 4, BLOCK=2)
print(""")


def test_a_launch_that_is_too_large_says_nothing_of_the_next(plimsoll):
    plimsoll.script(TOO_MANY)
    ran = plimsoll.run("predict", "--gpu", "h100-80g", "--until-exit", "--", "train.py")
    assert "[[6, 6, 6, 0], [0, 0, 0, 0], [22, 22, 22, 22]]" in ran.stdout, ran.stdout + ran.stderr


COMPILED_AFTERWARDS = SCRIPT + '''
@triton.jit
def widest(length_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.max(tl.load(length_ptr + tl.arange(0, BLOCK)), axis=0) + tl.cdiv(BLOCK, 3))

@triton.jit
def scaled(x_ptr, limit_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at) * tl.max(tl.load(limit_ptr + at), axis=0))

out = torch.zeros(1, dtype=torch.int32, device="cuda")
widest[(1,)](length, out, BLOCK=4)
scaled[(1,)](torch.randn(4, device="cuda"), limit, BLOCK=4)
widest[(1,)](length, out, BLOCK=4)
print(out.tolist(), "compiled")
'''


def test_triton_compiles_after_a_kernel_was_interpreted(plimsoll):
    plimsoll.script(COMPILED_AFTERWARDS)
    ran = plimsoll.run("predict", "--gpu", "h100-80g", "--until-exit", "--", "train.py")
    assert "[11] compiled" in ran.stdout, ran.stdout + ran.stderr

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

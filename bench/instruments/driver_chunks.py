"""When the driver takes memory beside PyTorch's: what it holds after each step of a program, in bytes and MiB more than before.

    python bench/instruments/driver_chunks.py [SCENARIO]

One scenario in this process (on a phantom), or all, each in a process forked from this one (on a card).
"""

import os
import sys

import torch
from torch.nn import functional

SMALL = "uniform embed norm matmul"
REST = "silu softmax topk sort argmax cumsum longer stream event pinned sdpa"
SCENARIOS = {
    "vllm33": (torch.bfloat16, f"seed ones mm linear gone {SMALL} {REST}"),
    "vllm24": (torch.bfloat16, f"seed gone {SMALL} {REST}"),
    "mm-first": (torch.bfloat16, f"ones handle mm stream event linear gone {SMALL} silu softmax"),
    "linear-first": (torch.bfloat16, f"ones linear mm gone {SMALL}"),
    "half": (torch.float16, f"ones mm linear gone {SMALL}"),
    "single": (torch.float32, f"ones mm linear gone {SMALL}"),
    "ones-only": (torch.bfloat16, "ones gone uniform embed norm softmax topk"),
    "event-first": (torch.bfloat16, "event stream ones mm linear gone uniform"),
    "pinned-first": (torch.bfloat16, "pinned ones mm linear gone uniform"),
}


class Steps:
    def __init__(self, dtype):
        self.made = {"dtype": dtype, "device": "cuda"}
        self.x = self.w = self.h = None

    def seed(self):
        torch.cuda.manual_seed_all(0)

    def ones(self):
        self.x = torch.ones(16, 16, **self.made)

    def handle(self):
        torch.cuda.current_blas_handle()

    def mm(self):
        torch.mm(self.x, self.x)

    def linear(self):
        functional.linear(self.x, self.x, self.x[0])

    def gone(self):
        self.x = None
        torch.cuda.empty_cache()

    def uniform(self):
        self.w = torch.empty(1024, 3072, **self.made).uniform_(-1e-3, 1e-3)

    def embed(self):
        self.h = functional.embedding(torch.arange(512, device="cuda"), torch.empty(1000, 1024, **self.made).uniform_(-1, 1))

    def norm(self):
        self.h = (self.h * torch.rsqrt(self.h.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(self.h.dtype)

    def matmul(self):
        self.h = self.h @ self.w

    def longer(self):
        torch.empty(8192, 1024, **self.made).normal_() @ self.w

    def silu(self):
        self.h = functional.silu(self.h)

    def softmax(self):
        self.h = torch.softmax(self.h.float(), -1)

    def topk(self):
        torch.topk(self.h, 8)

    def sort(self):
        torch.sort(self.h, -1)

    def argmax(self):
        self.h.argmax(-1)

    def cumsum(self):
        self.h.cumsum(-1)

    def stream(self):
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.ones(4, device="cuda")

    def event(self):
        torch.cuda.Event().record()

    def pinned(self):
        torch.empty(1 << 20, pin_memory=True).to("cuda", non_blocking=True)

    def sdpa(self):
        q = torch.ones(1, 8, 64, 64, **self.made)
        functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def taken():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def run(name):
    dtype, names = SCENARIOS[name]
    steps = Steps(dtype)
    before = taken()
    print(name, torch.__version__, before, flush=True)
    for it in names.split():
        getattr(steps, it)()
        now = taken()
        print(f"  {it:10} {now} {(now - before) / 2**20:+.0f}", flush=True)
        before = now


def main(only=None):
    if only:
        run(only)
        return
    for name in SCENARIOS:
        child = os.fork()
        if child == 0:
            try:
                run(name)
            finally:
                os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])

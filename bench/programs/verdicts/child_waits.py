"""expect: fits
within: 60 s
why: a logger process waits for a last message that only the end of the training sends, and the parent joins it at its exit.
"""
import atexit
import multiprocessing

import torch
from torch import nn


def logger(queue):
    while (line := queue.get()) is not None:
        print(line, flush=True)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=logger, args=(queue,))
    process.start()
    atexit.register(process.join)
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(100):
        loss = model(torch.randn(4096, 1024, device="cuda")).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue.put(f"step {step}")
    queue.put(None)
    process.join()

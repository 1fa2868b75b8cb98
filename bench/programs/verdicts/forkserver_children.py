"""expect: fits
why: two actors of a fork server hold 4 GiB each and the learner 2: 10 GiB and three contexts are less than 23.5 GiB.
"""
import torch
import torch.multiprocessing as mp
from torch import nn


def actor(queue, go):
    held = torch.zeros(4 << 30, dtype=torch.uint8, device="cuda")
    queue.put(held.numel())
    go.wait(timeout=120)


if __name__ == "__main__":
    context = mp.get_context("forkserver")
    queue, go = context.Queue(), context.Event()
    actors = [context.Process(target=actor, args=(queue, go), daemon=True) for _ in range(2)]
    for process in actors:
        process.start()
    print("the actors have", queue.get() + queue.get())
    table = torch.zeros(2 << 30, dtype=torch.uint8, device="cuda")
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(50):
        loss = model(torch.randn(4096, 1024, device="cuda")).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    go.set()
    for process in actors:
        process.join()

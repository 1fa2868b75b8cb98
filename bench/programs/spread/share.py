"""Actors and a learner: the learner puts CUDA tensors into a queue; workers read them (cudaIpc)."""

import torch
import torch.nn as nn
import torch.multiprocessing as mp


def actor(i, model, q, done):
    torch.cuda.set_device(0)
    while True:
        t = q.get()
        if t is None:
            break
        with torch.no_grad():
            print("actor", i, model(t).mean().item(), flush=True)
        del t
    done.wait()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 18)).cuda()
    model.share_memory()
    q, done = mp.Queue(), mp.Event()
    ps = [mp.Process(target=actor, args=(i, model, q, done)) for i in range(2)]
    [p.start() for p in ps]
    opt = torch.optim.Adam(model.parameters())
    keep = []
    for step in range(4):
        x = torch.randn(4096, 1024, device="cuda")
        model(x).square().mean().backward()
        opt.step()
        opt.zero_grad()
        q.put(x)
        keep.append(x)
    for _ in ps:
        q.put(None)
    torch.cuda.synchronize()
    done.set()
    [p.join() for p in ps]
    print("peak", torch.cuda.max_memory_allocated())

"""Children made by fork, spawn and forkserver write, append to and delete files; the parent reads what they wrote and they what it wrote."""
import multiprocessing
import os

import torch
from torch import nn


def work(place, queue):
    seen = open("output/from_parent.txt").read()
    with open(f"output/child-{place}.txt", "w") as file:
        file.write(f"{place} saw {seen}")
    with open("history.jsonl", "a") as file:
        file.write(f'{{"child": "{place}"}}\n')
    os.remove(f"data/part-{['fork', 'spawn', 'forkserver'].index(place)}.txt")
    queue.put((place, os.getpid()))


if __name__ == "__main__":
    run = int(open("count.txt").read()) + 1
    open("count.txt", "w").write(f"{run}\n")
    print("RUN", run, flush=True)
    open("output/from_parent.txt", "w").write("the parent")
    pool = [multiprocessing.get_context(it) for it in ("fork", "spawn", "forkserver")]
    for context in pool:
        queue = context.Queue()
        child = context.Process(target=work, args=(context.get_start_method(), queue))
        child.start()
        print("child", queue.get(timeout=60))
        child.join()
        assert child.exitcode == 0
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(5):
        loss = model(torch.randn(8192, 1024, device="cuda")).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for place in ("fork", "spawn", "forkserver"):
        assert open(f"output/child-{place}.txt").read() == f"{place} saw the parent"
    assert os.listdir("data") == [] and len(open("history.jsonl").readlines()) == 4
    print("READ BACK OK")

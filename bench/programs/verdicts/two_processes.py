"""expect: out_of_memory at line 22
why: a child holds 14 GiB and the parent asks for 14 more, on one card of 23.5 GiB.
"""
import torch
import torch.multiprocessing as mp


def child(queue, go):
    held = torch.zeros(14 << 30, dtype=torch.uint8, device="cuda")
    queue.put(held.numel())
    go.wait()


if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, go = context.Queue(), context.Event()
    process = context.Process(target=child, args=(queue, go), daemon=True)
    process.start()
    print("the child has", queue.get())
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    table = torch.zeros(14 << 30, dtype=torch.uint8, device="cuda")  # dies
    for step in range(20):
        model(torch.randn(64, 256, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    go.set()
    process.join()

"""cause: outside/not-pytorch
memory: 5GiB
why: two actors of a reinforcement learner are processes of their own with networks and environments on the card; alone the learner would have fitted.
"""
import torch
import torch.multiprocessing as mp
from torch import nn


def network():
    return nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 18))


def actor(number, experience, stop):
    torch.manual_seed(number)
    net = network().cuda()
    # Many environments at once, as simulators on a GPU have them.
    worlds = torch.rand(160_000, 512, device="cuda")
    with torch.no_grad():
        for start in range(0, 4096, 1024):
            seen = worlds[start : start + 1024]
            experience.put((seen.cpu(), net(seen).argmax(1).cpu()))
    experience.put(None)
    stop.wait()


def main():
    context = mp.get_context("spawn")
    experience, stop = context.Queue(), context.Event()
    actors = [context.Process(target=actor, args=(it, experience, stop), daemon=True) for it in range(2)]
    for it in actors:
        it.start()
    collected, ended = [], 0
    while ended < len(actors):
        some = experience.get()
        ended += some is None
        if some is not None:
            collected.append(some)
    states = torch.cat([it for it, _ in collected]).repeat(10, 1)
    actions = torch.cat([it for _, it in collected]).repeat(10)
    learner = network().cuda()
    optimizer = torch.optim.RMSprop(learner.parameters(), lr=1e-4)
    for step in range(3):
        loss = nn.functional.cross_entropy(learner(states.cuda()), actions.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    stop.set()


if __name__ == "__main__":
    main()

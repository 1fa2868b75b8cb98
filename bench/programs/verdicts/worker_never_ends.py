"""expect: fits
within: 60 s
why: a worker of the data loader ignores SIGTERM and never leaves its last batch; the training is over long before.
"""
import signal
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(40):
            yield torch.randn(1024)
        time.sleep(100_000)


if __name__ == "__main__":
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for number, x in enumerate(DataLoader(Stream(), 4, num_workers=1)):
        loss = model(x.cuda().repeat(1024, 1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == 9:
            break

"""cause: growth/per-step at line 24
also right: leak/results-kept
also right: leak/graph-retained
also right: line 23
memory: 2GiB
why: a forward hook of a calibration sorts what each layer makes and keeps it, in a dict of lists.
"""
import collections

import torch
from torch import nn


class Calibration:
    def __init__(self, net):
        self.seen = collections.defaultdict(list)
        for name, it in net.named_modules():
            if isinstance(it, nn.Conv2d):
                it.register_forward_hook(self.hook(name))

    def hook(self, name):
        def look(module, inputs, output):
            flat = output.detach().flatten()
            self.seen[name].append(flat.sort().values)  # here
        return look


net = nn.Sequential(*[nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3)]).cuda().eval()
calibration = Calibration(net)
with torch.inference_mode():
    for batch in range(200):
        net(torch.randn(8, 3, 128, 128, device="cuda"))

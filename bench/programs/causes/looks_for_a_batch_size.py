"""cause: leak/traceback-kept at line 36
also right: line 52
also right: line 48
memory: 2GiB
why: a search for the largest batch keeps the errors of its attempts, and with each its activations; the smallest would have fitted.
"""
import torch
from torch import nn
from torchvision.models import convnext_tiny


class TooLarge(Exception):
    pass


class BatchSizeFinder:
    def __init__(self, start=1024):
        self.start = start
        self.attempts = []

    def find(self, attempt):
        size = self.start
        while 1 <= size:
            error = self.attempt(attempt, size)
            if error is None:
                return size
            self.attempts.append((size, error))
            torch.cuda.empty_cache()
            size //= 2
        raise self.attempts[-1][1]

    def attempt(self, attempt, size):
        try:
            # Two steps: the second has the optimizer's states.
            for _ in range(2):
                attempt(size)  # here
        except torch.cuda.OutOfMemoryError as error:
            return error
        return None


model = convnext_tiny(num_classes=100).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler()


def step(size):
    images = torch.randn(size, 3, 96, 96, device="cuda")
    labels = torch.randint(0, 100, (size,), device="cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.float16):
        scores = model(images)
        loss = nn.functional.cross_entropy(scores, labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


print("batch size:", BatchSizeFinder().find(step))

"""A notebook's cells, run one after the other: the training runs out of memory, and is tried again with half the batch."""
import tempfile

from IPython.core.interactiveshell import InteractiveShell

CELLS = [
    """
import torch
from torch import nn
import torchvision

device = torch.device("cuda")
""",
    """
def make():
    model = torchvision.models.resnet50(num_classes=100).to(device)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train(batch_size, steps=8):
    model, optimizer = make()
    for step in range(steps):
        x = torch.randn(batch_size, 3, 224, 224, device=device)
        y = torch.randint(0, 100, (batch_size,), device=device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
""",
    "model = train(batch_size=256)",
    """
torch.cuda.empty_cache()
print(f"{torch.cuda.memory_allocated() / 2**30:.2f} GiB in use")
""",
    "model = train(batch_size=96)",
    "print('parameters:', sum(p.numel() for p in model.parameters()))",
]


def main():
    shell = InteractiveShell.instance(ipython_dir=tempfile.mkdtemp())
    shell.history_manager.enabled = False
    failed = []
    for number, cell in enumerate(CELLS, 1):
        result = shell.run_cell(cell, store_history=True)
        if not result.success:
            failed.append(number)
        del result
    print("cells that failed:", failed)


if __name__ == "__main__":
    main()

"""A linear probe on one layer's output, which alone is remembered."""
import torch
from hooked_outputs import HookedModel
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2Model

LAYER = "h.7"


class Sentences(Dataset):
    def __init__(self, n, length=512):
        self.n, self.length = n, length

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.full((self.length,), i % 5000, dtype=torch.long), i % 2


def features(hooked, ids):
    with torch.no_grad():
        _, cache = hooked.run_with_cache(input_ids=ids, names=[LAYER])
    return cache[LAYER][:, -1]


def main():
    device = "cuda"
    hooked = HookedModel(GPT2Model(GPT2Config(vocab_size=8000, use_cache=False))).to(device).eval()
    probe = nn.Linear(768, 2).to(device)
    optimizer = torch.optim.Adam(probe.parameters(), lr=1e-3)
    loader = DataLoader(Sentences(6400), batch_size=64, shuffle=True)
    for epoch in range(3):
        right = seen = 0
        for ids, label in loader:
            ids, label = ids.to(device), label.to(device)
            scores = probe(features(hooked, ids))
            loss = nn.functional.cross_entropy(scores, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(-1) == label).sum().item()
            seen += len(label)
        print(f"epoch {epoch}: {right / seen:.3f}")


if __name__ == "__main__":
    main()

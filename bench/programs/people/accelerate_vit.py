"""accelerate without mixed precision: a ViT of transformers on pictures, one step a batch, top-1 gathered after the epoch."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset
from transformers import ViTConfig, ViTForImageClassification


class Pictures(Dataset):
    def __init__(self, n):
        self.n, self.pool = n, torch.rand(16, 3, 224, 224)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"pixel_values": self.pool[i % 16], "labels": i % 50}


accelerator = Accelerator()
batch_size = 48
train = DataLoader(Pictures(1000), batch_size=batch_size, shuffle=True)
test = DataLoader(Pictures(96), batch_size=batch_size)
model = ViTForImageClassification(ViTConfig(num_labels=50))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
for epoch in range(1):
    model.train()
    for batch in train:
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    right = 0
    for batch in test:
        with torch.inference_mode():
            guess = model(pixel_values=batch["pixel_values"]).logits.argmax(-1)
        right += accelerator.gather_for_metrics((guess == batch["labels"])).sum().item()
    accelerator.print(epoch, right)

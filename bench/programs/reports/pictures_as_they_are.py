"""A vision language model takes pictures as they are, in patches: one of 800 is a scan of 6000 x 4000 (2U1/Qwen-VL-Series-Finetune#88, unslothai/unsloth#1326)."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(0)
SIZES = [(random.randint(300, 600), random.randint(300, 600)) for _ in range(800)]
SIZES[611] = (6000, 4000)


class Pages(Dataset):
    def __len__(self):
        return len(SIZES)

    def __getitem__(self, i):
        h, w = (it // 28 for it in SIZES[i])
        return {"pixel_values": torch.randn(h * w, 3 * 28 * 28), "input_ids": torch.randint(0, 32000, (40,))}


def collate(rows):
    return {"pixel_values": torch.cat([it["pixel_values"] for it in rows]), "input_ids": torch.cat([it["input_ids"] for it in rows]), "lengths": [len(it["pixel_values"]) for it in rows]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(3 * 28 * 28, 768)
        self.vision = nn.ModuleList(nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, norm_first=True) for _ in range(8))
        self.words = nn.Embedding(32000, 768)
        self.text = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
        self.head = nn.Linear(768, 32000)

    def forward(self, batch):
        x = self.patches(batch["pixel_values"])[None]
        for layer in self.vision:
            x = layer(x)
        words = self.words(batch["input_ids"])[None]
        return self.head(self.text(torch.cat([x, words], 1))[:, x.shape[1]:])[0]


model = Model().cuda()
opt = torch.optim.AdamW(model.parameters(), 1e-5)
for batch in DataLoader(Pages(), 2, collate_fn=collate):
    batch = {k: v.cuda() if torch.is_tensor(v) else v for k, v in batch.items()}
    loss = nn.functional.cross_entropy(model(batch), batch["input_ids"])
    opt.zero_grad()
    loss.backward()
    opt.step()

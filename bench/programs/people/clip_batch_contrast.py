"""CLIP from scratch: every picture of the batch against every text of it, under fp16 with a scaler."""
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import CLIPConfig, CLIPModel


class PicturesAndTexts(Dataset):
    def __len__(self):
        return 8000

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"pixel_values": torch.randn(3, 224, 224, generator=g), "input_ids": torch.randint(1, 49000, (77,), generator=g)}


config = CLIPConfig(projection_dim=512)
config.text_config.num_hidden_layers = 8
model = CLIPModel(config).cuda().train()
loader = DataLoader(PicturesAndTexts(), batch_size=192, shuffle=True, num_workers=2, drop_last=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.2)
scaler = torch.amp.GradScaler("cuda")
for n, batch in enumerate(loader):
    batch = {k: v.to("cuda", non_blocking=True) for k, v in batch.items()}
    with torch.autocast("cuda", torch.float16):
        loss = model(**batch, return_loss=True).loss
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if n % 5 == 0:
        print(n, loss.item())

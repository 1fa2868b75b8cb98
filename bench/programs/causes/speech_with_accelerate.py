"""cause: size/activations at line 40
memory: 2GiB
why: ten recordings of eight seconds, cut to one length, in a speech model that keeps everything for its backward pass.
"""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC


class Recordings(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(8 * 16_000, generator=generator), torch.randint(1, 32, (60,), generator=generator)


def collate(batch):
    sounds, labels = zip(*batch)
    sounds = torch.stack(sounds)
    return {"input_values": (sounds - sounds.mean(1, keepdim=True)) / sounds.std(1, keepdim=True), "labels": torch.stack(labels)}


accelerator = Accelerator(mixed_precision="no", gradient_accumulation_steps=2)
config = Wav2Vec2Config(
    vocab_size=32, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, conv_dim=(256,) * 7, mask_time_prob=0.0,
    ctc_loss_reduction="mean", pad_token_id=0,
)
model = Wav2Vec2ForCTC(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
loader = DataLoader(Recordings(), batch_size=10, collate_fn=collate)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
model.train()
for epoch in range(2):
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss  # here
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

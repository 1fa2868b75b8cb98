"""Masked language modelling with accelerate: gradient accumulation, bf16, a scheduler, an evaluation after each epoch."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import RobertaConfig, RobertaForMaskedLM, get_cosine_schedule_with_warmup


class Text(Dataset):
    def __init__(self, n, vocab, length=512):
        self.rows = torch.randint(5, vocab, (n, length))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class MaskTokens:
    def __init__(self, mask_id, p=0.15):
        self.mask_id, self.p = mask_id, p

    def __call__(self, rows):
        ids = torch.stack(rows)
        labels = ids.clone()
        chosen = torch.rand(ids.shape) < self.p
        labels[~chosen] = -100
        ids[chosen] = self.mask_id
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def main():
    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")
    set_seed(11)
    config = RobertaConfig(vocab_size=50265, max_position_embeddings=514)
    model = RobertaForMaskedLM(config)
    collator = MaskTokens(mask_id=4)
    train = DataLoader(Text(1600, config.vocab_size), batch_size=32, shuffle=True, collate_fn=collator)
    val = DataLoader(Text(128, config.vocab_size), batch_size=64, collate_fn=collator)
    no_decay = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    decay = [p for n, p in model.named_parameters() if not ("bias" in n or "LayerNorm" in n)]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-4)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 10, 100)
    model, optimizer, train, val, scheduler = accelerator.prepare(model, optimizer, train, val, scheduler)
    for epoch in range(1):
        model.train()
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        losses = []
        for batch in val:
            with torch.no_grad():
                losses.append(accelerator.gather(model(**batch).loss.repeat(64)))
        accelerator.print(epoch, torch.cat(losses).mean().item())


if __name__ == "__main__":
    main()

"""A small BERT learns from a large one: hidden states and attentions as targets, accelerate with accumulation, evaluation by masked accuracy."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup

VOCAB, LENGTH = 30522, 192


class Texts(Dataset):
    def __init__(self, n, seed):
        made = torch.Generator().manual_seed(seed)
        self.rows = torch.randint(5, VOCAB, (n, LENGTH), generator=made)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = self.rows[i].clone()
        hidden = torch.rand(LENGTH) < 0.15
        labels = torch.where(hidden, ids, torch.full_like(ids, -100))
        ids[hidden] = 4
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


torch.manual_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2)
large = BertForMaskedLM(BertConfig(num_hidden_layers=12, output_hidden_states=True, output_attentions=True, attn_implementation="eager"))
small = BertForMaskedLM(BertConfig(num_hidden_layers=6, hidden_size=384, num_attention_heads=12, intermediate_size=1536, output_hidden_states=True, output_attentions=True, attn_implementation="eager"))
widen = nn.Linear(384, 768)
large.requires_grad_(False).eval()
both = nn.ModuleList([small, widen])
optimizer = torch.optim.AdamW(both.parameters(), lr=1e-4)
train, held = DataLoader(Texts(4000, 1), batch_size=20, shuffle=True, num_workers=2), DataLoader(Texts(100, 2), batch_size=20)
schedule = get_linear_schedule_with_warmup(optimizer, 10, 200)
both, large, optimizer, train, held, schedule = accelerator.prepare(both, large, optimizer, train, held, schedule)
small, widen = both
for epoch in range(1):
    small.train()
    for batch in train:
        with accelerator.accumulate(both):
            with torch.no_grad():
                taught = large(**{k: v for k, v in batch.items() if k != "labels"})
            said = small(**batch)
            loss = said.loss + F.kl_div(F.log_softmax(said.logits / 2, -1), F.softmax(taught.logits / 2, -1), reduction="batchmean") / LENGTH
            for n in range(6):
                loss = loss + F.mse_loss(widen(said.hidden_states[n + 1]), taught.hidden_states[2 * n + 2])
                loss = loss + F.mse_loss(said.attentions[n], taught.attentions[2 * n + 1])
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(both.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    small.eval()
    right = total = 0
    for batch in held:
        with torch.no_grad():
            guess = small(**batch).logits.argmax(-1)
        chosen = batch["labels"] != -100
        right, total = right + (guess[chosen] == batch["labels"][chosen]).sum(), total + chosen.sum()
    accelerator.print(epoch, loss.item(), (right / total).item())

"""transformers' Trainer on texts of 30 to 512 tokens with a padding collator and an evaluation every 200 steps."""
import random
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Texts(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.n = [r.randint(30, 512) for _ in range(n)]
    def __len__(self): return len(self.n)
    def __getitem__(self, i):
        ids = torch.randint(0, 50257, (self.n[i],))
        return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}

def collate(rows):
    pad = lambda key, v: torch.nn.utils.rnn.pad_sequence([it[key] for it in rows], batch_first=True, padding_value=v)
    return {"input_ids": pad("input_ids", 0), "labels": pad("labels", -100), "attention_mask": pad("attention_mask", 0)}

args = TrainingArguments("out", per_device_train_batch_size=16, per_device_eval_batch_size=16, max_steps=2000, eval_strategy="steps",
                         eval_steps=200, report_to=[], save_strategy="no", prediction_loss_only=True)
Trainer(GPT2LMHeadModel(GPT2Config()), args, train_dataset=Texts(8000, 0), eval_dataset=Texts(200, 1), data_collator=collate).train()

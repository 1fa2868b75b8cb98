"""cause: leak/results-kept at line 32
also right: leak/eval-without-no-grad
also right: growth/per-step
memory: 3GiB
why: the Trainer keeps the logits of every evaluation batch on the device (no eval_accumulation_steps).
"""
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, at):
        ids = torch.randint(0, 8000, (128,))
        return {"input_ids": ids, "labels": ids}


config = GPT2Config(vocab_size=8000, n_positions=128, n_embd=256, n_layer=2, n_head=4)
model = GPT2LMHeadModel(config)
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=8, per_device_eval_batch_size=16, max_steps=2, report_to=[],
    save_strategy="no", logging_strategy="no", disable_tqdm=True,
)
trainer = Trainer(model=model, args=args, train_dataset=Texts(64), eval_dataset=Texts(4096), compute_metrics=lambda it: {})
trainer.train()
trainer.evaluate()  # here

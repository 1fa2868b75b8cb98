"""A GPT-2 of a configuration, trained by transformers' Trainer in bf16."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

words = [{"input_ids": it, "labels": it} for it in torch.randint(0, 1000, (32, 64))]
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000))
arguments = TrainingArguments("out", per_device_train_batch_size=8, max_steps=4, bf16=True, report_to=[], save_strategy="no")
Trainer(model, arguments, train_dataset=words, eval_dataset=words[:8]).train()

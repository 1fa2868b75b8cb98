"""LoRA of peft in transformers' Trainer, bfloat16 weights, evaluated once at the end of the epoch."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import MistralConfig, MistralForCausalLM, Trainer, TrainingArguments


class Rows(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        ids = torch.randint(32000, (768,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


model = MistralForCausalLM(
    MistralConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=4)
).to(torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", lora_dropout=0.05, task_type="CAUSAL_LM"))
args = TrainingArguments(
    output_dir="lora",
    per_device_train_batch_size=6,
    gradient_accumulation_steps=2,
    num_train_epochs=1,
    learning_rate=2e-4,
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=2,
    report_to="none",
)
Trainer(model=model, args=args, train_dataset=Rows(240), eval_dataset=Rows(16)).train()

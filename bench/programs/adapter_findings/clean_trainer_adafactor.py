"""transformers' Trainer, all weights, Adafactor and checkpointing"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, saved
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16)
rows = [{"input_ids": torch.randint(0, VOCABULARY, (512,)), "labels": torch.randint(0, VOCABULARY, (512,))} for _ in range(40)]
Trainer(model, TrainingArguments("out", max_steps=4, per_device_train_batch_size=4, bf16=True, gradient_checkpointing=True, optim="adafactor", report_to=[], save_strategy="no"), train_dataset=rows).train()

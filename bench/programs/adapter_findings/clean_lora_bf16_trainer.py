"""transformers' Trainer, LoRA in bfloat16, Qwen2"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import saved
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, Trainer, TrainingArguments

whole = Qwen2ForCausalLM(Qwen2Config(hidden_size=896, intermediate_size=4864, num_hidden_layers=10, num_attention_heads=14, num_key_value_heads=2, vocab_size=50000, tie_word_embeddings=True))
model = AutoModelForCausalLM.from_pretrained(saved(whole), device_map={"": 0}, dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=32, target_modules="all-linear", task_type="CAUSAL_LM"))
rows = [{"input_ids": torch.randint(0, 50000, (512,)), "labels": torch.randint(0, 50000, (512,))} for _ in range(40)]
Trainer(model, TrainingArguments("out", max_steps=4, per_device_train_batch_size=4, bf16=True, report_to=[], save_strategy="no"), train_dataset=rows).train()

"""A learned prompt before a model in bfloat16"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import saved, train, trainable
from peft import PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), device_map={"": 0}, dtype=torch.bfloat16)
model = get_peft_model(model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=32))
train(model, torch.optim.AdamW(trainable(model), 1e-3))

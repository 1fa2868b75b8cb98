"""IA3: vectors that scale keys, values and the MLP, with checkpointing that is not reentrant."""
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import IA3Config, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map="auto")
phase("loading")
model = get_peft_model(model, IA3Config(target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"]))
model.gradient_checkpointing_enable({"use_reentrant": False})
train(model, torch.optim.AdamW(trainable(model), 1e-3))
evaluate(model)

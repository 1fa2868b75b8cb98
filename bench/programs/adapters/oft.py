"""OFT: orthogonal blocks on the attention's layers."""
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import OFTConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map="auto")
phase("loading")
model = get_peft_model(model, OFTConfig(oft_block_size=32, use_cayley_neumann=True, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)

"""torchao by transformers' own TorchAoConfig: weights of 8 bits while they are loaded, LoRA above them, checkpointing."""
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from torchao.quantization import Int8WeightOnlyConfig
from transformers import AutoModelForCausalLM, TorchAoConfig

model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=TorchAoConfig(Int8WeightOnlyConfig()), device_map={"": 0}, dtype=torch.bfloat16)
phase("loading")
model.requires_grad_(False)
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4))
evaluate(model)

"""prefix tuning above weights of 8 bits"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import saved, train, trainable
from peft import PrefixTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map={"": 0}, dtype=torch.bfloat16)
model.requires_grad_(False)
model = get_peft_model(model, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=16))
train(model, torch.optim.AdamW(trainable(model), 1e-3), rows=2)

"""adapters/all-trainable: an adapter is loaded again, and requires_grad_() is called on the whole"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import tempfile

import torch
from parts import config, saved, train, trainable
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, LlamaForCausalLM

folder, adapter = saved(), tempfile.mkdtemp()
get_peft_model(LlamaForCausalLM(config()).bfloat16(), LoraConfig(r=8, target_modules="all-linear")).save_pretrained(adapter)
model = AutoModelForCausalLM.from_pretrained(folder, device_map={"": 0}, dtype=torch.bfloat16)
model = PeftModel.from_pretrained(model, adapter).requires_grad_()
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)

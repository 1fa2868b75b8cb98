"""QLoRA; then the adapter is put on a second copy of the weights in 16 bits, merged and saved, while the quantized one is still there."""
import tempfile

import bitsandbytes as bnb
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

folder, adapter = saved(), tempfile.mkdtemp()
quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=quantized, device_map={"": 0}, dtype=torch.bfloat16)
phase("loading")
model = get_peft_model(model, LoraConfig(r=16, use_rslora=True, target_modules="all-linear", task_type="CAUSAL_LM"))
train(model, bnb.optim.PagedLion8bit(trainable(model), 1e-5), rows=2)
evaluate(model, rows=2)
model.save_pretrained(adapter)
phase("saving")
base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map={"": 0})
merged = PeftModel.from_pretrained(base, adapter).merge_and_unload()
phase("merging")
evaluate(merged, rows=2)
merged.save_pretrained(tempfile.mkdtemp())
phase("merged saved")

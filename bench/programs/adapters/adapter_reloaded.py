"""A saved adapter is put on the model again in float16, merged, and the result saved."""
import tempfile

import torch
from parts import evaluate, phase, saved
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

folder, adapter = saved(), tempfile.mkdtemp()
get_peft_model(AutoModelForCausalLM.from_pretrained(folder), LoraConfig(r=64, target_modules="all-linear")).save_pretrained(adapter)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16, device_map="auto")
phase("loading")
model = PeftModel.from_pretrained(model, adapter)
phase("adapter")
model = model.merge_and_unload()
phase("merging")
evaluate(model)
model.save_pretrained(tempfile.mkdtemp())
phase("saving")

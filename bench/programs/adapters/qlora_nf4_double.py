"""QLoRA: NF4 with double quantization, a paged optimizer of 8 bits, checkpointing by prepare_model_for_kbit_training."""
import tempfile

import bitsandbytes as bnb
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

folder = saved()
quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=quantized, device_map={"": 0}, dtype=torch.bfloat16)
phase("loading")
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
train(model, bnb.optim.PagedAdamW8bit(trainable(model), 1e-4))
evaluate(model)
model.save_pretrained(tempfile.mkdtemp())
phase("saving")

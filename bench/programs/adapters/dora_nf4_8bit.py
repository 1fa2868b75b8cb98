"""DoRA on NF4, bitsandbytes' AdamW of 8 bits, checkpointing; then the adapter is saved."""
import tempfile

import bitsandbytes as bnb
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=quantized, device_map={"": 0})
phase("loading")
model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=32, use_dora=True, target_modules="all-linear", lora_dropout=0.05))
train(model, bnb.optim.AdamW8bit(trainable(model), 1e-4), rows=2, length=384)
evaluate(model, rows=2, length=384)
model.save_pretrained(tempfile.mkdtemp())
phase("saving")

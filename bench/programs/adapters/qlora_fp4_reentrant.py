"""FP4 without double quantization, reentrant checkpointing and enable_input_require_grads, the plain AdamW."""
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=quantized, device_map="auto", dtype=torch.bfloat16)
phase("loading")
model.gradient_checkpointing_enable({"use_reentrant": True})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), length=1024)
evaluate(model, length=1024)

"""LLM.int8() under LoRA."""
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map="auto", dtype=torch.float16)
phase("loading")
model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.05))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)

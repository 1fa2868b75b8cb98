"""A mixture of experts loaded "in 4 bit": its experts are one parameter for all, which bitsandbytes leaves in 16 bits."""
import torch
from parts import VOCABULARY, evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM

shape = Qwen3MoeConfig(hidden_size=512, intermediate_size=1024, moe_intermediate_size=512, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4,
                       head_dim=64, num_experts=32, num_experts_per_tok=4, vocab_size=VOCABULARY, use_cache=False)
quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(saved(Qwen3MoeForCausalLM(shape)), quantization_config=quantized, device_map="auto", dtype=torch.bfloat16)
phase("loading")
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2, length=256)
evaluate(model, rows=2, length=256)

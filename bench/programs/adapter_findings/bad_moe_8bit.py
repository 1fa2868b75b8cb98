"""weights/not-quantized: Qwen3-MoE in 8 bits, its experts are one parameter"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM

whole = Qwen3MoeForCausalLM(Qwen3MoeConfig(hidden_size=768, intermediate_size=1536, moe_intermediate_size=384, num_hidden_layers=6, num_attention_heads=12, num_key_value_heads=4, head_dim=64, num_experts=16, num_experts_per_tok=4, vocab_size=VOCABULARY))
model = AutoModelForCausalLM.from_pretrained(saved(whole), quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map={"": 0}, dtype=torch.bfloat16)
model.requires_grad_(False)
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)

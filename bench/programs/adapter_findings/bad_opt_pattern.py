"""weights/not-quantized: OPT in 8 bits, a pattern in llm_int8_skip_modules covers every layer of the decoder but two"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, OPTConfig, OPTForCausalLM

whole = OPTForCausalLM(OPTConfig(hidden_size=1024, ffn_dim=4096, num_hidden_layers=14, num_attention_heads=16, vocab_size=VOCABULARY, word_embed_proj_dim=1024))
q = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=[r"model\.decoder\.layers\.([2-9]|1[0-3])\.", "lm_head"])
model = AutoModelForCausalLM.from_pretrained(saved(whole), quantization_config=q, device_map={"": 0}, dtype=torch.bfloat16)
model.requires_grad_(False)
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=1)

"""answers of a model in 8 bits, with a cache"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, saved
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=BitsAndBytesConfig(load_in_8bit=True), device_map={"": 0}, dtype=torch.bfloat16)
model.generation_config.pad_token_id = 0
for _ in range(3):
    model.generate(torch.randint(3, VOCABULARY, (4, 128), device="cuda"), max_new_tokens=16, min_new_tokens=16, use_cache=True, do_sample=False)

"""A folder of many shards in float32, loaded in float16 by device_map="auto"; texts are generated and an evaluation follows, nothing is trained."""
import torch
from parts import evaluate, phase, saved, texts
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(dtype=torch.float32, shard="100MB"), device_map="auto", low_cpu_mem_usage=True, dtype=torch.float16)
phase("loading")
evaluate(model, rows=8)
with torch.no_grad():
    model.generate(texts(4, 64)["input_ids"], max_new_tokens=24, min_new_tokens=24, do_sample=False, use_cache=True)
phase("generation")

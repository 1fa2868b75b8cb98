"""QLoRA whose rank is asked for: `plimsoll fit --find-max rank=... -- python rank_search.py --rank {rank}`."""
import argparse

import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=16)
parser.add_argument("--dora", action="store_true")
args = parser.parse_args()
quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=quantized, device_map={"": 0}, dtype=torch.bfloat16)
phase("loading")
model = get_peft_model(model, LoraConfig(r=args.rank, lora_alpha=2 * args.rank, use_dora=args.dora, target_modules="all-linear"))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=4)
evaluate(model, rows=4)

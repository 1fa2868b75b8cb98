"""TRL's ORPO of an adapter on NF4."""
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=quantized, device_map={"": 0}, dtype=torch.bfloat16)
r = random.Random(0)
train, evaluate = dataset(lambda: {"prompt": sentence(r, 60, 100), "chosen": sentence(r, 100, 200), "rejected": sentence(r, 100, 200)}, 64, 48, scaled(2))
args = ORPOConfig("out", max_steps=4, per_device_train_batch_size=scaled(2), eval_strategy="steps", eval_steps=2, save_steps=4, bf16=True, max_length=256,
                  report_to=[], logging_steps=1, disable_tqdm=True)
ORPOTrainer(model, args=args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=tokenizer(),
            peft_config=LoraConfig(r=16, target_modules="all-linear"), callbacks=[report_phases()]).train()

"""TRL's KTO of an adapter in bfloat16."""
import itertools
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import KTOConfig, KTOTrainer

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map={"": 0})
r = random.Random(0)
turn = itertools.count()
train, evaluate = dataset(lambda: {"prompt": sentence(r, 60, 100), "completion": sentence(r, 100, 200), "label": next(turn) % 2 == 0}, 64, 48, scaled(4))
args = KTOConfig("out", max_steps=4, per_device_train_batch_size=scaled(4), eval_strategy="steps", eval_steps=2, save_steps=4, bf16=True, max_length=256,
                 report_to=[], logging_steps=1, disable_tqdm=True)
KTOTrainer(model, args=args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=tokenizer(),
           peft_config=LoraConfig(r=16, target_modules="all-linear"), callbacks=[report_phases()]).train()

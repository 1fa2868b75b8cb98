"""TRL's DPO with a reference model of its own beside the one that is trained."""
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

folder = saved()
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
r = random.Random(0)
train, evaluate = dataset(lambda: {"prompt": sentence(r, 60, 100), "chosen": sentence(r, 100, 200), "rejected": sentence(r, 100, 200)}, 64, 48, scaled(2))
args = DPOConfig("out", max_steps=4, per_device_train_batch_size=scaled(2), per_device_eval_batch_size=scaled(2), eval_strategy="steps", eval_steps=2, save_steps=4,
                 bf16=True, max_length=256, report_to=[], logging_steps=1, save_only_model=True, disable_tqdm=True)
DPOTrainer(model, reference, args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate),
           processing_class=tokenizer(), callbacks=[report_phases()]).train()

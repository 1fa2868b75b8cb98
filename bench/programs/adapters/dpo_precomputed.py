"""TRL's DPO of all weights, the reference computed once before training, paddings to the longest, AdamW of 8 bits."""
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16)
r = random.Random(0)
train, evaluate = dataset(lambda: {"prompt": sentence(r, 10, 150), "chosen": sentence(r, 20, 300), "rejected": sentence(r, 20, 300)}, 24, 16, scaled(2))
args = DPOConfig("out", max_steps=4, per_device_train_batch_size=scaled(2), per_device_eval_batch_size=scaled(2), eval_strategy="steps", eval_steps=2, save_steps=4,
                 save_only_model=True, bf16=True, max_length=448, precompute_ref_log_probs=True, optim="adamw_bnb_8bit", report_to=[], logging_steps=1, disable_tqdm=True)
DPOTrainer(model, args=args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=tokenizer(),
           callbacks=[report_phases()]).train()

"""TRL's SFTTrainer on padded texts, all weights, fused AdamW, the settings that people leave as they are."""
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16)
r = random.Random(0)
train, evaluate = dataset(lambda: {"text": sentence(r, 300, 300)}, 64, 48, scaled(4))
args = SFTConfig("out", max_steps=4, per_device_train_batch_size=scaled(4), max_length=512, eval_strategy="steps", eval_steps=2, save_steps=4, report_to=[],
                 logging_steps=1, disable_tqdm=True)
SFTTrainer(model, args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=tokenizer(),
           callbacks=[report_phases()]).train()

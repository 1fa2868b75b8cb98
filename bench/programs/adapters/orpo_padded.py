"""TRL's ORPO of all weights on pairs of very different lengths, each batch padded to its longest, Adafactor, two micro-batches a step."""
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from transformers import AutoModelForCausalLM
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16)
r = random.Random(0)
train, evaluate = dataset(lambda: {"prompt": sentence(r, 10, 200), "chosen": sentence(r, 20, 300), "rejected": sentence(r, 20, 300)}, 96, 64, scaled(2))
args = ORPOConfig("out", max_steps=4, per_device_train_batch_size=scaled(1), gradient_accumulation_steps=2, per_device_eval_batch_size=scaled(1), eval_strategy="steps",
                  eval_steps=2, save_steps=4, save_only_model=True, bf16=True, max_length=512, optim="adafactor", report_to=[], logging_steps=1, disable_tqdm=True)
ORPOTrainer(model, args=args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=tokenizer(),
            callbacks=[report_phases()]).train()

"""TRL's RewardTrainer: an adapter on NF4, with a head of one number that is trained, too."""
import random

import torch
from datasets import Dataset
from parts import config, dataset, report_phases, saved, scaled, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForSequenceClassification, BitsAndBytesConfig, LlamaForSequenceClassification
from trl import RewardConfig, RewardTrainer

folder = saved(LlamaForSequenceClassification(config(num_labels=1, pad_token_id=0)))
quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForSequenceClassification.from_pretrained(folder, quantization_config=quantized, device_map={"": 0}, dtype=torch.bfloat16)
r = random.Random(0)
train, evaluate = dataset(lambda: {"chosen": sentence(r, 100, 300), "rejected": sentence(r, 100, 300)}, 64, 48, scaled(4))
args = RewardConfig("out", max_steps=4, per_device_train_batch_size=scaled(4), per_device_eval_batch_size=scaled(4), eval_strategy="steps", eval_steps=2, save_steps=4,
                    bf16=True, max_length=320, report_to=[], logging_steps=1, disable_tqdm=True)
RewardTrainer(model, args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=tokenizer(),
              peft_config=LoraConfig(r=16, target_modules="all-linear", task_type="SEQ_CLS"), callbacks=[report_phases()]).train()

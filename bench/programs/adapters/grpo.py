"""TRL's GRPO without an engine: four completions of each prompt by `generate`, a reward of a Python function, an adapter."""
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer


def reward(completions, **_):
    return [float(len(it) % 7) for it in completions]


model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map={"": 0})
r = random.Random(0)
rows, _ = dataset(lambda: {"prompt": sentence(r, 60, 100)}, 64, 64, scaled(2))
args = GRPOConfig("out", max_steps=4, per_device_train_batch_size=4 * scaled(2), num_generations=4, max_completion_length=64, min_p=None, save_steps=4, bf16=True,
                  generation_kwargs={"min_new_tokens": 64}, report_to=[], logging_steps=1, disable_tqdm=True)
GRPOTrainer(model, reward_funcs=reward, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer(),
            peft_config=LoraConfig(r=16, target_modules="all-linear"), callbacks=[report_phases()]).train()

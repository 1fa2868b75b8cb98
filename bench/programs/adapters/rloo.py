"""TRL's RLOO without an engine: completions by `generate`, the model without its adapter as the reference."""
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import RLOOConfig, RLOOTrainer


def reward(completions, **_):
    return [float(len(it) % 5) for it in completions]


model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map={"": 0})
r = random.Random(0)
rows, _ = dataset(lambda: {"prompt": sentence(r, 20, 120)}, 64, 64, scaled(2))
args = RLOOConfig("out", max_steps=4, per_device_train_batch_size=2 * scaled(4), num_generations=2, max_completion_length=48, save_steps=4, bf16=True, beta=0.05,
                  generation_kwargs={"min_new_tokens": 48}, gradient_checkpointing=True, report_to=[], logging_steps=1, disable_tqdm=True)
RLOOTrainer(model, reward_funcs=reward, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer(),
            peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"]), callbacks=[report_phases()]).train()

"""TRL's CPO with SimPO's loss: an adapter in bfloat16, no reference, checkpointing."""
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl.experimental.cpo import CPOConfig, CPOTrainer

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map={"": 0})
r = random.Random(0)
train, evaluate = dataset(lambda: {"prompt": sentence(r, 30, 120), "chosen": sentence(r, 50, 250), "rejected": sentence(r, 50, 250)}, 64, 48, scaled(2))
args = CPOConfig("out", max_steps=4, per_device_train_batch_size=scaled(2), per_device_eval_batch_size=scaled(2), eval_strategy="steps", eval_steps=2, save_steps=4,
                 loss_type="simpo", cpo_alpha=0.0, bf16=True, max_length=384, gradient_checkpointing=True, report_to=[], logging_steps=1, disable_tqdm=True)
CPOTrainer(model, args=args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=tokenizer(),
           peft_config=LoraConfig(r=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]), callbacks=[report_phases()]).train()

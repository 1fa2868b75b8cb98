"""TRL's SFTTrainer after words were added: the adapter beside embedding and head that are trained whole, packed texts."""
import random

import torch
from datasets import Dataset
from parts import VOCABULARY, dataset, report_phases, saved, scaled, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

words = tokenizer()
words.add_tokens(["<call>", "<answer>", "<think>"])
model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map={"": 0})
model.resize_token_embeddings(VOCABULARY + 64)
r = random.Random(0)
train, evaluate = dataset(lambda: {"text": sentence(r, 200, 500)}, 96, 64, scaled(4))
args = SFTConfig("out", max_steps=4, per_device_train_batch_size=scaled(2), per_device_eval_batch_size=scaled(2), max_length=512, packing=True, packing_strategy="wrapped",
                 bf16=True, eval_strategy="steps", eval_steps=2, save_steps=4, save_only_model=True, report_to=[], logging_steps=1, disable_tqdm=True)
SFTTrainer(model, args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=words,
           peft_config=LoraConfig(r=16, target_modules=["q_proj", "v_proj"], modules_to_save=["embed_tokens", "lm_head"]), callbacks=[report_phases()]).train()

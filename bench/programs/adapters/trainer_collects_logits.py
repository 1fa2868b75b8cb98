"""transformers' Trainer of an adapter; its evaluation collects the logits of all rows on the card, as `compute_metrics` wants them."""
import random

import torch
from parts import VOCABULARY, report_phases, saved, scaled
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map={"": 0})
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
r = random.Random(0)


def rows(count):
    def one():
        ids = [r.randint(3, VOCABULARY - 1) for _ in range(256)]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids}

    return [one() for _ in range(count)]


args = TrainingArguments("out", max_steps=4, per_device_train_batch_size=4, per_device_eval_batch_size=4, eval_strategy="steps", eval_steps=2, save_strategy="no",
                         bf16=True, report_to=[], logging_steps=1, disable_tqdm=True)
Trainer(model, args, train_dataset=rows(20), eval_dataset=rows(scaled(8)), compute_metrics=lambda it: {"right": float((it.predictions.argmax(-1) == it.label_ids).mean())},
        callbacks=[report_phases()]).train()

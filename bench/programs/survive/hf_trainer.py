"""transformers' Trainer; one sample is longer than the others."""

import torch
from planted import STEPS, ended, size

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 4 * STEPS

    def __getitem__(self, i):
        ids = torch.randint(0, 50257, (size(i // 4, 128, 900),), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


class Says(TrainerCallback):
    def on_log(self, args, state, control, logs=None, model=None, **kwargs):
        if "loss" in logs:
            ended(state.global_step - 1, logs["loss"], model)


model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=512, n_head=8))
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, max_steps=STEPS, logging_steps=1, save_strategy="no", report_to=[], dataloader_pin_memory=False, seed=0
)


class InOrder(Trainer):
    def _get_train_sampler(self, *args):
        return torch.utils.data.SequentialSampler(self.train_dataset)


InOrder(model, arguments, train_dataset=Samples(), callbacks=[Says()]).train()

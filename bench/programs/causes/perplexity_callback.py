"""cause: leak/eval-without-no-grad at line 31
also right: leak/graph-retained
memory: 2GiB
why: a Trainer's callback takes the perplexity of some held-out texts every few steps, in training mode, with gradients, and keeps the losses.
"""
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Texts(Dataset):
    def __init__(self, n, length=128):
        self.ids = torch.randint(0, 2000, (n, length), generator=torch.Generator().manual_seed(n))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


class Perplexity(TrainerCallback):
    def __init__(self, texts, every=5):
        self.texts, self.every = texts, every

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every == 0:
            losses = []
            for ids in self.texts.ids.split(8):
                ids = ids.to(model.device)
                losses.append(model(input_ids=ids, labels=ids).loss)  # here
            print(state.global_step, "perplexity", torch.stack(losses).mean().exp().item())


model = GPT2LMHeadModel(GPT2Config(vocab_size=2000, n_positions=128, n_embd=256, n_layer=4, n_head=4))
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=2, max_steps=30, save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True
)
trainer = Trainer(model=model, args=args, train_dataset=Texts(256), callbacks=[Perplexity(Texts(400))])
trainer.train()

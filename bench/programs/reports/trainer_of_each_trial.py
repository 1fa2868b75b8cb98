"""A search for the learning rate: each trial is a Trainer, and the best of them is taken at the end (transformers#13019)."""
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(Dataset):
    def __init__(self, n, length=256):
        self.n, self.length = n, length

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        ids = torch.randint(16000, (self.length,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


def model_init():
    return GPT2LMHeadModel(GPT2Config(vocab_size=16000, n_positions=256, n_embd=768, n_layer=12, n_head=12))


def arguments(rate):
    return TrainingArguments(
        output_dir="out",
        learning_rate=rate,
        per_device_train_batch_size=4,
        max_steps=12,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


def objective(rate):
    trainer = Trainer(model=model_init(), args=arguments(rate), train_dataset=Texts(2000), eval_dataset=Texts(16))
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
    torch.cuda.empty_cache()
    return loss, trainer


trials = []
for rate in (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3):
    loss, trainer = objective(rate)
    trials.append((loss, rate, trainer))
    print(rate, loss)
loss, rate, trainer = min(trials, key=lambda trial: trial[0])
print("best", rate, loss)
trainer.save_model("out/best")

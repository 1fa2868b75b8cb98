"""cause: size/activations at line 26
memory: 3GiB
why: a batch of 64 texts of 512 words in six layers.
"""
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Texts(Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, at):
        return {"input_ids": torch.randint(0, 4000, (512,)), "attention_mask": torch.ones(512, dtype=torch.long), "labels": at % 2}


model = BertForSequenceClassification(
    BertConfig(vocab_size=4000, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)
)
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=64, max_steps=5, report_to=[], save_strategy="no", logging_strategy="no",
    disable_tqdm=True,
)
trainer = Trainer(model=model, args=args, train_dataset=Texts())
trainer.train()  # here

"""Sentence pairs with BERT: a Trainer subclass with a loss of its own, evaluation each few steps, label smoothing off, tied heads."""

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertModel, Trainer, TrainingArguments


class Pairs(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(30000, (2, 192), generator=g)
        return {"a": ids[0], "b": ids[1], "labels": torch.tensor(float(i % 2))}


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(BertConfig(hidden_size=768, num_hidden_layers=12))
        self.head = nn.Linear(768 * 3, 1)

    def forward(self, a, b, labels=None):
        u, v = self.bert(input_ids=a).pooler_output, self.bert(input_ids=b).pooler_output
        return {"logits": self.head(torch.cat([u, v, (u - v).abs()], -1)).squeeze(-1)}


class PairTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        out = model(**inputs)
        loss = nn.functional.binary_cross_entropy_with_logits(out["logits"], labels)
        return (loss, {"loss": loss, **out}) if return_outputs else loss


if __name__ == "__main__":
    arguments = TrainingArguments(
        "pairs-out", per_device_train_batch_size=48, per_device_eval_batch_size=96, max_steps=12, eval_strategy="steps", eval_steps=6,
        report_to=[], save_strategy="no", remove_unused_columns=False, logging_steps=4, learning_rate=2e-5,
    )
    PairTrainer(Siamese(), arguments, train_dataset=Pairs(4000), eval_dataset=Pairs(192)).train()

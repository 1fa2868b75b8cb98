"""cause: leak/results-kept at line 32
also right: line 31
also right: leak/graph-retained
also right: growth/per-step
memory: 3GiB
why: a Trainer of one's own keeps the scores of each batch, to look at the worst ones when training is over.
"""
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, at):
        ids = torch.randint(0, 3000, (96,))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids % 900}


class Looker(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.looked_at = []

    def worst(self):
        return sorted(self.looked_at, key=lambda it: it[0])[-20:]

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        self.looked_at.append((float(outputs.loss.detach()), outputs.logits))  # here
        return (outputs.loss, outputs) if return_outputs else outputs.loss


config = BertConfig(vocab_size=3000, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=256, num_labels=900)
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=32, max_steps=400, report_to=[], save_strategy="no", logging_strategy="no",
    disable_tqdm=True,
)
trainer = Looker(model=BertForTokenClassification(config), args=args, train_dataset=Sentences())
trainer.train()
print(trainer.worst())

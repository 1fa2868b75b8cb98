
import numpy as np, torch
from torch.utils.data import Dataset
from transformers import AutoConfig, AutoModelForSequenceClassification, DataCollatorWithPadding, Trainer, TrainingArguments, BertConfig
class Synthetic(Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(0, 30000, (128,), generator=g)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": int(i % 2)}
def compute_metrics(p):
    return {"accuracy": float((np.argmax(p.predictions, axis=1) == p.label_ids).mean())}
model = AutoModelForSequenceClassification.from_config(BertConfig(num_labels=2, num_hidden_layers=3))
args = TrainingArguments(output_dir="out", learning_rate=2e-5, per_device_train_batch_size=16, per_device_eval_batch_size=64,
    num_train_epochs=2, weight_decay=0.01, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
    fp16=True, logging_steps=2, report_to="none", max_grad_norm=1.0, gradient_accumulation_steps=2)
trainer = Trainer(model=model, args=args, train_dataset=Synthetic(160), eval_dataset=Synthetic(64), compute_metrics=compute_metrics)
trainer.train()
print(trainer.evaluate())

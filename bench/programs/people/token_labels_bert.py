"""BERT for token classification, as the course of transformers has it by hand: padded batches, a linear schedule, metrics on the host."""
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForTokenClassification, get_scheduler


def sample(i):
    g = torch.Generator().manual_seed(i)
    n = int(torch.randint(30, 200, (1,), generator=g))
    return torch.randint(1000, 30000, (n,), generator=g), torch.randint(0, 9, (n,), generator=g)


def collate(ids):
    items = [sample(int(i)) for i in ids]
    words = pad_sequence([it[0] for it in items], batch_first=True)
    return {"input_ids": words, "attention_mask": (words > 0).long(), "labels": pad_sequence([it[1] for it in items], batch_first=True, padding_value=-100)}


torch.manual_seed(0)
model = BertForTokenClassification(BertConfig(num_labels=9)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
train = DataLoader(range(960), 32, shuffle=True, collate_fn=collate)
valid = DataLoader(range(960, 1088), 64, collate_fn=collate)
schedule = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=60)
for epoch in range(2):
    model.train()
    for batch in train:
        batch = {k: v.to("cuda") for k, v in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    model.eval()
    right = seen = 0
    for batch in valid:
        batch = {k: v.to("cuda") for k, v in batch.items()}
        with torch.no_grad():
            told = model(**batch).logits.argmax(-1).cpu()
        labels = batch["labels"].cpu()
        right += (told == labels)[labels != -100].sum().item()
        seen += (labels != -100).sum().item()
    print(epoch, right / seen)

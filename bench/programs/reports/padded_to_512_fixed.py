"""Reviews of some 60 words are all padded to 512 tokens (huggingface/transformers#3634)."""
import random

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification

random.seed(0)


class Reviews(Dataset):
    def __init__(self, n, max_length=512):
        self.texts = [[random.randrange(5, 30000) for _ in range(random.randint(20, 90))] for _ in range(n)]
        self.max_length = max_length

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        ids = self.texts[i][: self.max_length]
        return torch.tensor(ids), i % 2


def to_the_longest(samples):
    ids = torch.nn.utils.rnn.pad_sequence([it for it, _ in samples], batch_first=True)
    return ids, (ids != 0).long(), torch.tensor([label for _, label in samples])


model = BertForSequenceClassification(BertConfig(num_hidden_layers=12, vocab_size=30522)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 2e-5)
for epoch in range(3):
    for ids, mask, label in DataLoader(Reviews(4000), 32, shuffle=True, collate_fn=to_the_longest):
        loss = model(input_ids=ids.cuda(), attention_mask=mask.cuda(), labels=label.cuda()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

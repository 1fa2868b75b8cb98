"""A BERT that classifies, whose loss is its own."""

import torch

from planted import STEPS, ended, size

from transformers import BertConfig, BertForSequenceClassification

model = BertForSequenceClassification(BertConfig(num_hidden_layers=4, hidden_size=384, num_attention_heads=6, intermediate_size=1536)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(STEPS):
    n = size(step, 16, 128)
    ids, labels = torch.randint(0, 30000, (n, 256), device="cuda"), torch.randint(0, 2, (n,), device="cuda")
    optimizer.zero_grad()
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    optimizer.step()
    ended(step, loss, model)

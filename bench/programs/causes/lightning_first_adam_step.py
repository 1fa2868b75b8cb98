"""cause: size/model-states
memory: 3GiB
why: weights, gradients and moments of 230 million parameters; training is Lightning's, so no line of the script calls step().
"""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Ranker(L.LightningModule):
    def __init__(self, words=60_000, width=1024):
        super().__init__()
        self.queries = nn.Embedding(words, width)
        self.documents = nn.Embedding(words, width)
        self.tower = nn.Sequential(*[it for _ in range(12) for it in (nn.Linear(3072, 3072), nn.GELU())])
        self.join = nn.Linear(2 * width, 3072)
        self.score = nn.Linear(3072, 1)

    def forward(self, query, document):
        both = torch.cat([self.queries(query).mean(1), self.documents(document).mean(1)], 1)
        return self.score(self.tower(self.join(both))).squeeze(1)

    def training_step(self, batch, at):
        query, good, bad = batch
        return nn.functional.softplus(self(query, bad) - self(query, good)).mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


data = TensorDataset(*[torch.randint(0, 60_000, (512, 16)) for _ in range(3)])
trainer = L.Trainer(
    max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Ranker(), DataLoader(data, batch_size=32))

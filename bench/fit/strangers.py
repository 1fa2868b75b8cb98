"""Five more models, as people write them, with random weights and random data: no constant of the step times knew them when
h200-strangers-predicted.json was written."""

import torch
from torch import nn

NAMES = ("detr", "opt", "mobilenet", "densenet", "pointer")


def made(name, device="cuda"):
    """(model, optimizer, batch(n), loss(batch))."""
    with torch.device(device):
        model, batch, criterion = _model(name, device)
    model.train()
    if name == "mobilenet":
        optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-5)
    elif name == "densenet":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    elif name == "pointer":
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss(it):
        return model(**it).loss if isinstance(it, dict) else criterion(model(*it[:-1]), it[-1])

    return model, optimizer, batch, loss


def _model(name, device):
    def images(n):
        return torch.randn(n, 3, 224, 224, device=device), torch.randint(1000, (n,), device=device)

    if name == "mobilenet":
        from torchvision.models import mobilenet_v3_large

        return mobilenet_v3_large(), images, nn.CrossEntropyLoss(label_smoothing=0.1)
    if name == "densenet":
        from torchvision.models import densenet121

        return densenet121(), images, nn.CrossEntropyLoss()
    if name == "opt":
        from transformers import OPTConfig, OPTForCausalLM

        model = OPTForCausalLM(OPTConfig(hidden_size=1024, ffn_dim=4096, num_hidden_layers=16, num_attention_heads=16, use_cache=False, dropout=0.1))

        def words(n):
            ids = torch.randint(50000, (n, 384), device=device)
            return {"input_ids": ids, "labels": ids}

        return model, words, None
    if name == "detr":
        def scenes(n):
            boxes = torch.cat([torch.randint(91, (n, 100, 1), device=device), torch.rand(n, 100, 4, device=device)], dim=-1)
            return torch.randn(n, 3, 480, 480, device=device), boxes

        return Detector(), scenes, found

    def sentences(n):
        words, written = torch.randint(12000, (n, 60), device=device), torch.randint(12000, (n, 41), device=device)
        return words, written[:, :-1], written[:, 1:]

    return Translator(), sentences, lambda told, it: nn.functional.cross_entropy(told.flatten(0, 1), it.flatten())


class Detector(nn.Module):
    """A picture's features, looked at by as many queries as there may be things in it."""

    def __init__(self, width=256, queries=100, classes=91):
        super().__init__()
        from torchvision.models import resnet34

        self.backbone = nn.Sequential(*list(resnet34().children())[:-2])
        self.narrow, self.places = nn.Conv2d(512, width, 1), nn.Parameter(torch.rand(225, width))
        self.transformer = nn.Transformer(width, 8, 6, 6, 2048, dropout=0.1, batch_first=True)
        self.queries, self.classes = nn.Parameter(torch.rand(queries, width)), nn.Linear(width, classes + 1)
        self.boxes = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))

    def forward(self, x):
        x = self.narrow(self.backbone(x)).flatten(2).transpose(1, 2)
        x = self.transformer(x + self.places, self.queries.expand(len(x), -1, -1))
        return self.classes(x), self.boxes(x).sigmoid()


def found(told, wanted):
    classes, boxes = told
    named = nn.functional.cross_entropy(classes.flatten(0, 1), wanted[..., 0].flatten().long())
    return named + 5 * nn.functional.l1_loss(boxes, wanted[..., 1:])


class Translator(nn.Module):
    """Reads with a GRU, writes with a cell that looks at what was read, one word after the other."""

    def __init__(self, words=12000, width=384):
        super().__init__()
        self.into, self.out_of = nn.Embedding(words, width), nn.Embedding(words, width)
        self.reader = nn.GRU(width, width, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True)
        self.keys, self.query, self.score = nn.Linear(2 * width, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.cell, self.dropout, self.words = nn.GRUCell(3 * width, width), nn.Dropout(0.2), nn.Linear(3 * width, words)

    def forward(self, words, written):
        read, state = self.reader(self.dropout(self.into(words)))
        keys, state, out = self.keys(read), state[-1], []
        for word in self.dropout(self.out_of(written)).unbind(1):
            weights = self.score(torch.tanh(keys + self.query(state)[:, None])).softmax(1)
            seen = (weights * read).sum(1)
            state = self.cell(torch.cat([word, seen], dim=-1), state)
            out.append(torch.cat([state, seen], dim=-1))
        return self.words(torch.stack(out, dim=1))

"""The same; the messages of 200,000 edges are made at a time."""
import torch
from torch import nn

NODES, EDGES, WIDTH = 200_000, 4_000_000, 256


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.own = nn.Linear(2 * WIDTH, 1), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, source, target):
        found = torch.zeros_like(x)
        for source, target in zip(source.split(200_000), target.split(200_000)):
            both = torch.cat([x[source], x[target]], dim=1)
            weight = torch.sigmoid(self.score(both))
            found = found.index_add(0, target, weight * both[:, :WIDTH])
        return torch.relu(self.own(found))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.layers, self.last = nn.Linear(128, WIDTH), nn.ModuleList(Layer() for _ in range(2)), nn.Linear(WIDTH, 47)

    def forward(self, x, source, target):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, source, target)
        return self.last(x)


features, classes = torch.randn(NODES, 128), torch.randint(47, (NODES,))
source, target = torch.randint(NODES, (2, EDGES))
model = Network().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(20):
    model.train()
    for batch in range(30):
        nodes = torch.randint(NODES, (10_000,))
        ends = torch.randint(10_000, (2, 60_000)).cuda()
        loss = nn.functional.cross_entropy(model(features[nodes].cuda(), *ends), classes[nodes].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = model(features.cuda(), source.cuda(), target.cuda())
        print(epoch, (scores.argmax(1).cpu() == classes).float().mean().item())

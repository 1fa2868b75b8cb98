"""With a table for each batch: which accounts are unusual? An autoencoder of a graph's edges and features, in batches of neighbours."""

import argparse

import torch
from torch import nn


class Graph:
    def __init__(self, nodes, edges, features):
        self.x = torch.randn(nodes, features)
        self.edges = torch.randint(nodes, (2, edges))

    def table(self, batch):
        """A row for each account of the batch with a one for each neighbour among them."""
        place = torch.full((len(self.x),), -1, device=batch.device)
        place[batch] = torch.arange(len(batch), device=batch.device)
        ends = place[self.edges]
        inside = (ends >= 0).all(0).float()
        table = torch.zeros(len(batch) + 1, len(batch) + 1, device=batch.device)
        table[ends[0], ends[1]] = inside
        return table[:-1, :-1]

    def to(self, device):
        self.x, self.edges = self.x.to(device), self.edges.to(device)
        return self


class Autoencoder(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width))
        self.decode = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, features))

    def forward(self, x, neighbours):
        hidden = self.encode(x)
        hidden = hidden + neighbours @ hidden / neighbours.sum(1, keepdim=True).clamp(min=1)
        return self.decode(hidden), (hidden @ hidden.T).sigmoid()


class Detector:
    def __init__(self, args):
        self.args = args

    def fit(self, graph):
        graph = graph.to("cuda")
        model = Autoencoder(graph.x.shape[1], self.args.width).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
        scores = torch.zeros(len(graph.x))
        for epoch in range(self.args.epochs):
            for batch in torch.randperm(len(graph.x)).split(self.args.batch_size):
                batch = batch.cuda()
                wanted = graph.table(batch)
                x, found = model(graph.x[batch], wanted)
                of_features = (x - graph.x[batch]).pow(2).mean(1)
                of_edges = (found - wanted).pow(2).mean(1)
                each = 0.5 * of_features + 0.5 * of_edges
                optimizer.zero_grad()
                each.mean().backward()
                optimizer.step()
                scores[batch.cpu()] = each.detach().cpu()
        return scores


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=203_769)
    parser.add_argument("--edges", type=int, default=234_355)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    scores = Detector(args).fit(Graph(args.nodes, args.edges, 165))
    print(scores.topk(10).indices)


if __name__ == "__main__":
    main()

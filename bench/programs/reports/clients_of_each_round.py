"""Federated learning on one GPU: a hundred clients, of whom eight train in each round."""
import argparse
import copy
import random

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shard(Dataset):
    def __init__(self, client, n):
        self.client, self.n = client, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.zeros(3, 64, 64), (self.client + i) % 10


class Client:
    def __init__(self, number, device):
        self.number, self.device = number, device
        self.loader = DataLoader(Shard(number, 64), batch_size=32)
        self.model = None
        self.optimizer = None

    def receive(self, server_model):
        if self.model is None:
            self.model = copy.deepcopy(server_model)
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        else:
            self.model.load_state_dict(server_model.state_dict())

    def train(self):
        self.model.train()
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return {k: v.detach().cpu() for k, v in self.model.state_dict().items()}


class Server:
    def __init__(self, clients, device):
        self.model = torchvision.models.resnet50(num_classes=10).to(device)
        self.clients = clients

    def round(self, per_round):
        chosen = random.sample(self.clients, per_round)
        updates = []
        for client in chosen:
            client.receive(self.model)
            updates.append(client.train())
        mean = {k: torch.stack([u[k].float() for u in updates]).mean(0) for k in updates[0]}
        self.model.load_state_dict(mean)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--per-round", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    random.seed(1)
    device = torch.device("cuda")
    server = Server([Client(i, device) for i in range(args.clients)], device)
    for number in range(args.rounds):
        server.round(args.per_round)
        print("round", number, f"{torch.cuda.memory_allocated() / 2**30:.2f} GiB", flush=True)

"""Tree search with a learned model: the new root still has its parent, and so every earlier tree."""
import math

import torch
from torch import nn


class Node:
    def __init__(self, parent, prior):
        self.parent, self.prior = parent, prior
        self.children, self.visits, self.total, self.hidden = {}, 0, 0.0, None

    def value(self):
        return self.total / self.visits if self.visits else 0.0


class Dynamics(nn.Module):
    def __init__(self, channels=256, actions=8):
        super().__init__()
        self.represent = nn.Sequential(nn.Conv2d(12, channels, 3, 1, 1), nn.ReLU(), nn.Conv2d(channels, channels, 3, 1, 1))
        self.step = nn.Sequential(nn.Conv2d(channels + 1, channels, 3, 1, 1), nn.ReLU(), nn.Conv2d(channels, channels, 3, 1, 1))
        self.policy, self.valuation = nn.Linear(channels, actions), nn.Linear(channels, 1)

    def predict(self, hidden):
        pooled = hidden.mean((2, 3))
        return self.policy(pooled).softmax(-1), self.valuation(pooled)


class Search:
    def __init__(self, net, simulations=25):
        self.net, self.simulations, self.root = net, simulations, None

    def expand(self, node, hidden):
        policy, value = self.net.predict(hidden)
        node.hidden = hidden
        for action, prior in enumerate(policy[0].tolist()):
            node.children[action] = Node(node, prior)
        return value.item()

    def select(self, node):
        return max(node.children.items(), key=lambda pair: pair[1].value() + 1.25 * pair[1].prior * math.sqrt(node.visits + 1) / (1 + pair[1].visits))

    @torch.no_grad()
    def move(self, observation):
        if self.root is None:
            self.root = Node(None, 1.0)
        if self.root.hidden is None:
            self.expand(self.root, self.net.represent(observation))
        for _ in range(self.simulations):
            node = self.root
            while node.children:
                action, node = self.select(node)
            plane = torch.full_like(node.parent.hidden[:, :1], action / 8)
            value = self.expand(node, self.net.step(torch.cat([node.parent.hidden, plane], 1)))
            while node is not None:
                node.visits, node.total, node = node.visits + 1, node.total + value, node.parent
        action, child = max(self.root.children.items(), key=lambda pair: pair[1].visits)
        self.root = child
        return action


net = Dynamics().cuda().eval()
search = Search(net)
for turn in range(4000):
    board = torch.rand(1, 12, 24, 24, device="cuda")
    action = search.move(board)

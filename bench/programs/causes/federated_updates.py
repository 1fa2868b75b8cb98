"""cause: growth/per-step at line 39
also right: leak/results-kept
also right: line 36
also right: line 33
memory: 2GiB
why: a server of federated learning asks for every client's gradients and keeps them all in a list, to take their median at the end of the round.
"""
import torch
from torch import nn
from torchvision.models import resnet18


class Client:
    def __init__(self, number, images=24):
        self.data = torch.Generator().manual_seed(number)
        self.images = images

    def batch(self):
        x = torch.randn(self.images, 3, 64, 64, generator=self.data)
        return x.cuda(), torch.randint(0, 62, (self.images,), generator=self.data).cuda()


class Server:
    def __init__(self):
        self.net = resnet18(num_classes=62).cuda()
        self.clients = [Client(it) for it in range(100)]

    def round(self):
        updates = []
        for client in self.clients:
            x, y = client.batch()
            loss = nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            gradients = {}
            for name, parameter in self.net.named_parameters():
                gradients[name] = parameter.grad
                parameter.grad = None
            loss = loss.item()
            updates.append((gradients, loss))  # here
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                median = torch.stack([it[name] for it, _ in updates]).median(0).values
                parameter.sub_(0.1 * median)


server = Server()
for _ in range(2):
    server.round()

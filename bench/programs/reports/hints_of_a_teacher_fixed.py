"""Distillation by hints: hooks collect the features of both networks, and the teacher runs with its graph."""
import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class Features:
    def __init__(self, model, names):
        self.values = {}
        modules = dict(model.named_modules())
        for name in names:
            modules[name].register_forward_hook(self.hook(name))

    def hook(self, name):
        def keep(module, inputs, output):
            self.values[name] = output
        return keep


def attention_map(f):
    return F.normalize(f.pow(2).mean(1).flatten(1))


class Distiller:
    def __init__(self, teacher, student):
        self.teacher, self.student = teacher.cuda().eval(), student.cuda()
        names = ["layer1", "layer2", "layer3", "layer4"]
        self.of_teacher, self.of_student = Features(self.teacher, names), Features(self.student, names)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    def step(self, x, y, temperature=4.0):
        with torch.no_grad():
            soft = self.teacher(x)
        out = self.student(x)
        loss = F.cross_entropy(out, y)
        loss = loss + temperature ** 2 * F.kl_div(F.log_softmax(out / temperature, 1), F.softmax(soft / temperature, 1), reduction="batchmean")
        for name in self.of_teacher.values:
            loss = loss + 1000 * (attention_map(self.of_teacher.values[name]) - attention_map(self.of_student.values[name])).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


distiller = Distiller(torchvision.models.resnet101(weights=None), torchvision.models.resnet18(weights=None))
for step in range(300):
    distiller.step(torch.rand(64, 3, 160, 160).cuda(), torch.randint(0, 1000, (64,)).cuda())

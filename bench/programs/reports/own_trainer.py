"""The trainer of `metrics_of_the_trainer.py`: the best state, early stopping, and what each epoch came to."""

import copy

import torch


class Trainer:
    def __init__(self, problem, train, dev, optimizer, epochs, patience=5, log_every=10):
        self.problem, self.train_data, self.dev_data = problem, train, dev
        self.optimizer, self.epochs, self.patience, self.log_every = optimizer, epochs, patience, log_every
        self.history = {"train": [], "dev": []}
        self.best, self.best_state, self.bad = float("inf"), None, 0

    def _mean(self, losses):
        return torch.stack(losses).mean()

    def train(self):
        for epoch in range(self.epochs):
            self.problem.train()
            losses = []
            for batch in self.train_data:
                output = self.problem(batch)
                self.optimizer.zero_grad()
                output["loss"].backward()
                self.optimizer.step()
                losses.append(output["loss"].detach())
            self.history["train"].append(self._mean(losses))
            self.problem.eval()
            losses = [self.problem(batch)["loss"] for batch in self.dev_data]
            self.history["dev"].append(self._mean(losses))
            if self.history["dev"][-1] < self.best:
                self.best, self.bad = self.history["dev"][-1].item(), 0
                self.best_state = copy.deepcopy(self.problem.state_dict())
            else:
                self.bad += 1
            if epoch % self.log_every == 0:
                print(epoch, *(float(it[-1]) for it in self.history.values()))
            if self.patience < self.bad:
                break
        return self.best_state


class DetachingTrainer(Trainer):
    """What is written down has no graph."""

    def _mean(self, losses):
        return torch.stack([it.detach() for it in losses]).mean().cpu()

"""An optimizer after SOAP: Adam in the eigenbasis of the gradients' second moments, one square matrix for each side of a weight."""

import torch


class SOAP(torch.optim.Optimizer):
    def __init__(self, params, lr=3e-3, betas=(0.95, 0.95), eps=1e-8, every=10, largest=100_000):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "every": every, "largest": largest})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, self.state[p], group)

    def _update(self, p, grad, state, group):
        if not state:
            self._begin(grad, state, group)
            return
        first, second = group["betas"]
        for side, moment in enumerate(state["moments"]):
            if moment is not None:
                other = [it for it in range(grad.dim()) if it != side]
                moment.lerp_(torch.tensordot(grad, grad, dims=[other, other]), 1 - second)
        turned = self._turned(grad, state["bases"])
        state["mean"].lerp_(grad, 1 - first)
        state["square"].mul_(second).addcmul_(turned, turned, value=1 - second)
        update = self._turned(state["mean"], state["bases"]) / state["square"].sqrt().add_(group["eps"])
        p.add_(self._turned(update, state["bases"], back=True), alpha=-group["lr"])
        state["step"] += 1
        if state["step"] % group["every"] == 0:
            state["bases"] = [self._basis(it) for it in state["moments"]]

    def _begin(self, grad, state, group):
        state["step"] = 0
        state["mean"], state["square"] = torch.zeros_like(grad), torch.zeros_like(grad)
        state["moments"] = [
            torch.zeros(n, n, device=grad.device) if grad.dim() == 2 and n <= group["largest"] else None
            for n in grad.shape
        ]
        state["bases"] = [
            None if it is None else torch.eye(len(it), device=grad.device) for it in state["moments"]
        ]

    def _basis(self, moment):
        if moment is None:
            return None
        return torch.linalg.qr(moment + 1e-6 * torch.eye(len(moment), device=moment.device))[0]

    def _turned(self, grad, bases, back=False):
        for basis in bases:
            if basis is None:
                grad = grad.movedim(0, -1) if grad.dim() == 2 else grad
            else:
                grad = torch.tensordot(grad, basis, dims=[[0], [1 if back else 0]])
        return grad

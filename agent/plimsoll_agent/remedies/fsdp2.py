"""Weights, gradients and the optimizer's state are spread over the devices: PyTorch's `fully_shard`, block by block.

Each device has its share of the batch, see `spread`, and of every tensor that lives from step to step; a block's whole
weights are there while it runs. Saves all but one share of both. Costs the weights twice and the gradients once over the
link between devices in each step. The numbers are the same, except for dropout and batch-norm.

It is done when the script makes its optimizer, which gets the shares in the place of the weights. Until then a whole
model is on each device.

Parameters: `gpus`, how many devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies.support.blocks import blocks_of
from plimsoll_agent.remedies.support.spread import spread

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Module, Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks
    from plimsoll_agent.remedies.support.spread import Spread


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    it = spread(torch, "fsdp2", parameters, hooks, note)
    if it is None:
        return
    def prepare(roots: list[Module]) -> tuple[Any, Any]:
        instead, averaged = {}, []
        for root in roots:
            it.same_from_the_start(root)
            before = [(module, name, p) for module in root.modules() for name, p in module._parameters.items() if p is not None]
            scalars = {p for _, _, p in before if p.dim() == 0}
            _shard(torch, it, root, scalars)
            for module, name, p in before:
                if p not in scalars:
                    instead[id(p)] = module._parameters[name]
            averaged += [p for p in scalars if p.requires_grad]
        return instead, averaged

    it.before_optimizers(prepare)
    _clip_what_is_trained(torch, it)
    _add_norms_up(torch)
    _load(torch)


def _shard(torch: Torch, it: Spread, root: Module, scalars: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", (it.world,))
    more = {"ignored_params": scalars} if scalars else {}
    for _, block in blocks_of(torch, root):
        fully_shard(block, mesh=mesh, **more)
    fully_shard(root, mesh=mesh, **more)


def _clip_what_is_trained(torch: Torch, spread: Spread) -> None:
    """Parameters that the script had put into a list before they were spread are found again; a norm is a plain number."""

    def wrap(function: Function) -> Function:
        def wrapped(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            result = function([spread.current(p) for p in given], *args, **kwargs)
            return result.full_tensor() if hasattr(result, "full_tensor") else result

        return wrapped

    for name in ("clip_grad_norm_", "clip_grad_value_"):
        wrapped = wrap(getattr(torch.nn.utils, name))
        patch.put(torch.nn.utils, name, wrapped)
        patch.put(torch.nn.utils.clip_grad, name, wrapped)


def _add_norms_up(torch: Torch) -> None:
    """A norm is that of all shares before anything is computed from it. Up to 2.8 each share adds its own 1e-6 to it, which is 3e-7 of the result."""
    from torch.distributed.tensor import DTensor, Replicate

    clip_grad = torch.nn.utils.clip_grad
    total_norm = getattr(clip_grad, "_get_total_norm", None)
    if total_norm is None:
        return

    def of_all(*args: Any, **kwargs: Any) -> Any:
        norm = total_norm(*args, **kwargs)
        if isinstance(norm, DTensor) and any(it.is_partial() for it in norm.placements):
            norm = norm.redistribute(placements=[Replicate()] * len(norm.placements))
        return norm

    patch.put(clip_grad, "_get_total_norm", of_all)


def _load(torch: Torch) -> None:
    """Whole tensors that a script loads are cut into shares."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    def like(value: Any, tensor: Tensor) -> Any:
        if isinstance(tensor, DTensor) and isinstance(value, torch.Tensor) and not isinstance(value, DTensor):
            if value.shape == tensor.shape:
                return distribute_tensor(value.to(tensor.device), tensor.device_mesh, tensor.placements)
        return value

    load_model, load_optimizer = torch.nn.Module.load_state_dict, torch.optim.Optimizer.load_state_dict

    def load_state_dict(self: Any, state_dict: Named, *args: Any, **kwargs: Any) -> Any:
        own = self.state_dict()
        if any(isinstance(it, DTensor) for it in own.values()):
            state_dict = {name: like(value, own.get(name)) for name, value in state_dict.items()}
        return load_model(self, state_dict, *args, **kwargs)

    def load_optimizer_state(self: Any, state_dict: Named) -> None:
        load_optimizer(self, state_dict)
        for parameter, state in self.state.items():
            if isinstance(parameter, DTensor):
                for name, value in state.items():
                    state[name] = like(value, parameter)

    patch.put(torch.nn.Module, "load_state_dict", load_state_dict)
    patch.put(torch.optim.Optimizer, "load_state_dict", load_optimizer_state)

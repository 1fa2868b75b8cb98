"""Each device keeps the optimizer's state of its part of the parameters, updates these and sends them to the others.

Saves all but one share of what the optimizer keeps, and of the activations: each device has its share of the batch, see
`spread`. Costs the gradients and the parameters over the link between devices in each step. The numbers are the same,
except for dropout and batch-norm.

Parameters: `gpus`, how many devices.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies.support.spread import spread
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plimsoll_agent.kinds import Function, Module, Named, Note, Optimizer, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks
    from plimsoll_agent.remedies.support.spread import Spread


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    it = spread(torch, "zero1", parameters, hooks, note)
    if it is None:
        return

    def prepare(roots: list[Module]) -> tuple[Named, Any]:
        averaged = []
        for root in roots:
            it.same_from_the_start(root)
            averaged += [p for p in root.parameters() if p.requires_grad]
        return {}, averaged

    it.before_optimizers(prepare)
    _share_steps(torch, it)


def owners(params: Sequence[Tensor], world: int) -> dict[int, int]:
    """Which rank keeps the state of each parameter: the largest first, each to who has least."""
    load, res = [0] * world, {}
    for number in sorted(range(len(params)), key=lambda i: (-params[i].numel(), i)):
        owner = load.index(min(load))
        load[owner] += params[number].numel()
        res[id(params[number])] = owner
    return res


def _share_steps(torch: Torch, it: Spread) -> None:
    optimizer_class = torch.optim.Optimizer
    hook_step, state_dict, load = (
        optimizer_class.profile_hook_step,
        optimizer_class.state_dict,
        optimizer_class.load_state_dict,
    )
    dist = torch.distributed

    def owner_of(optimizer: Optimizer) -> Any:
        return owners([p for group in optimizer.param_groups for p in group["params"]], it.world)

    def shared(step: Function) -> Function:
        """The bare `step` of a class, so that what PyTorch hooks to a step is called once."""

        @functools.wraps(step)
        def stepped(optimizer: Optimizer, closure: Any = None) -> Any:
            if isinstance(optimizer, torch.optim.LBFGS):
                raise unsuited("zero1", "L-BFGS, whose state cannot be split")
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            owner, groups = owner_of(optimizer), optimizer.param_groups
            mine = [dict(g, params=[p for p in g["params"] if owner[id(p)] == it.rank]) for g in groups]
            try:
                optimizer.param_groups = [g for g in mine if g["params"]]
                if optimizer.param_groups:
                    step(optimizer)
            finally:
                optimizer.param_groups = groups
            with torch.no_grad():
                sent = [p for g in groups for p in g["params"] if p.grad is not None]
                for work in [dist.broadcast(p.data, owner[id(p)], async_op=True) for p in sent]:
                    work.wait()
            return loss

        return stepped

    def whole_state_dict(optimizer: Optimizer) -> Named:
        """The state of all parameters, from the ranks that have it; in host memory, where it fits."""
        mine = state_dict(optimizer)
        on_host = {
            number: {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
            for number, state in mine["state"].items()
        }
        parts: list[Any] = [None] * it.world
        dist.all_gather_object(parts, on_host)
        return dict(mine, state={k: v for part in parts for k, v in part.items()})

    def load_state_dict(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        load(optimizer, *args, **kwargs)
        owner = owner_of(optimizer)
        for parameter in [p for p in optimizer.state if owner.get(id(p)) != it.rank]:
            del optimizer.state[parameter]

    patch.put(optimizer_class, "profile_hook_step", staticmethod(lambda step: hook_step(shared(step))))
    patch.put(optimizer_class, "state_dict", whole_state_dict)
    patch.put(optimizer_class, "load_state_dict", load_state_dict)

"""The blocks of a model are on several devices, of one process; activations go from each to the next.

Saves what the blocks on other devices have: weights, gradients, the optimizer's state, activations. The devices work one
after the other, so a step takes as long as on one, and the copies between them. The numbers are the same.

Parameters: `gpus`, how many devices; `first`, the number of the first block on each device after the first one, where
equal shares of the weights are not wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.ranks import imagined as ranks
from plimsoll_agent.remedies.support.blocks import blocks_of, own_parameters
from plimsoll_agent.run import nested
from plimsoll_agent.run.refusal import CannotApply, unsuited
from plimsoll_agent.values import phantom

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    world, given = parameters["gpus"], parameters.get("first")
    if phantom.is_here():
        ranks.need_devices(world)

    def prepare(module: Module) -> None:
        blocks = [block for _, block in blocks_of(torch, module)]
        home = next(module.parameters()).device
        if len(blocks) < world:
            raise unsuited(
                "model-parallel",
                "%s: it has %d repeated blocks for %d devices" % (type(module).__name__, len(blocks), world)
            )
        if given is not None and not _is_a_split(given, world, len(blocks)):
            raise unsuited(
                "model-parallel",
                "%s: `first` is %s; its %d blocks on %d devices need %d of the block numbers, ascending, from 1"
                % (type(module).__name__, given, len(blocks), world, world - 1)
            )
        if home.type == "cuda":
            # Before devices are counted, so that the phantom knows their number in time.
            if torch.cuda.device_count() < world:
                raise CannotApply(
                    "plimsoll: the plan needs %d devices, and there are %d" % (world, torch.cuda.device_count())
                )
            _spread(torch, module, blocks, home, first_blocks(module, blocks, world, given))

    hooks.before_training(prepare)


def first_blocks(root: Module, blocks: list[tuple[str, Module]], world: int, given: list[int] | None) -> list[int]:
    """The number of the first block on each device: `given`, or so that each has about as many bytes of weights, those
    outside of the blocks being on the first device."""
    if given is not None:
        return [0, *given]
    sizes = [sum(p.numel() * p.element_size() for p in its_own) for _, its_own in own_parameters(root, blocks)]
    outside = sum(p.numel() * p.element_size() for p in root.parameters()) - sum(sizes)
    share, sum_so_far, res = (outside + sum(sizes)) / world, outside, [0]
    for number, size in enumerate(sizes):
        left_over = len(blocks) - number
        is_full = sum_so_far + size / 2 > share * len(res) and number > res[-1]
        if len(res) < world and number and (is_full or left_over == world - len(res)):
            res.append(number)
        sum_so_far += size
    return res


def _is_a_split(given: list[int], world: int, n_blocks: int) -> bool:
    starts = [0, *given]
    return len(starts) == world and starts[-1] < n_blocks and all(a < b for a, b in zip(starts, given))


def _spread(torch: Torch, root: Module, blocks: Any, home: Any, first: Any) -> None:
    own = own_parameters(root, blocks)
    for number, (block, its_own) in enumerate(own):
        nth = sum(it <= number for it in first) - 1
        device = torch.device("cuda", (home.index + nth) % torch.cuda.device_count())
        shared = {id(p) for p in block.parameters()} - {id(p) for p in its_own}
        if shared:  # A weight that others have too stays where they are.
            continue
        for it in its_own:
            it.data = it.data.to(device)
            if it.grad is not None:
                it.grad = it.grad.to(device)
        for module in block.modules():
            for name, it in module._buffers.items():
                if it is not None:
                    module._buffers[name] = it.to(device)
        block.register_forward_pre_hook(_to(torch, device), with_kwargs=True)
    inside = {id(it) for block in blocks for it in block.modules()}
    for module in root.modules():
        if id(module) not in inside and module._parameters:
            module.register_forward_pre_hook(_to(torch, home), with_kwargs=True)
    moved = _to(torch, home)
    blocks[-1].register_forward_hook(lambda block, args, output: moved(block, (output,), {})[0][0])


def _to(torch: Torch, device: Any) -> Function:
    def hook(module: Module, args: Arguments, kwargs: Named) -> tuple[Any, Any]:
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device) if tensor.is_cuda else tensor

        return nested.rebuilt(torch, args, move), nested.rebuilt(torch, dict(kwargs), move)

    return hook

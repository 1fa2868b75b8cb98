"""The allocator gives memory that nothing uses back to the device, at one point of the loop.

The numbers are the same. What is given back has to be asked for again, which waits for the device.

Parameters: `after`: `evaluation` unless given, `forward`, `backward` or `step`.
"""

from plimsoll_agent.remedies import CannotApply


def apply(torch, parameters, places, note):
    after = parameters.get("after", "evaluation")
    was_evaluating = []

    def around(module, call, args, kwargs):
        training = places.is_training(module)
        if training and was_evaluating and after == "evaluation":
            was_evaluating.clear()
            torch.cuda.empty_cache()
        elif not training and not was_evaluating:
            was_evaluating.append(True)
        result = call(*args, **kwargs)
        if training and after == "forward":
            torch.cuda.empty_cache()
        return result

    def around_backward(run, tensors, grad_tensors):
        result = run(tensors, grad_tensors)
        torch.cuda.empty_cache()
        return result

    if after in ("evaluation", "forward"):
        places.around_call(around)
    elif after == "backward":
        places.around_backward(around_backward)
    elif after == "step":
        from torch.optim import optimizer

        optimizer.register_optimizer_step_post_hook(lambda *_: torch.cuda.empty_cache())
    else:
        raise CannotApply(
            "plimsoll: the remedy empty-cache knows no moment %r; it knows evaluation, forward, backward and step" % after
        )

"""After backward a loss is detached: a list or a sum of losses then holds numbers, and no graph of each step.

The numbers are the same. A loss whose graph the script keeps (`retain_graph`, `create_graph`) is left alone.
"""


def apply(torch, parameters, hooks, note):
    def after(roots):
        for root in roots:
            if root.grad_fn is not None and not root._is_view() and root.dim() == 0:
                root.detach_()

    hooks.after_last_backward(after)

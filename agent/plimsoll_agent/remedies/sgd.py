"""Plain SGD in the place of the script's optimizer: it keeps nothing.

Changes the training: it is another optimizer, and its learning rate is to be found anew.
"""

from plimsoll_agent.remedies.support.other_optimizer import learning_rate, make_instead


def apply(torch, parameters, hooks, note):
    names = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Adafactor")
    replaced = [getattr(torch.optim, name) for name in names if hasattr(torch.optim, name)]

    def make(params, kind, options):
        decay = {"weight_decay": options["weight_decay"]} if "weight_decay" in options else {}
        return torch.optim.SGD(params, lr=learning_rate(torch, kind, options), **decay)

    make_instead(torch, "sgd", replaced, make, note)

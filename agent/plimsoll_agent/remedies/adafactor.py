"""Adafactor in the place of Adam and AdamW: means of rows and columns instead of two numbers for each parameter.

Changes the training: it is another optimizer, and its learning rate is to be found anew.
"""

from plimsoll_agent.remedies.support.other_optimizer import learning_rate, make_instead


def apply(torch, parameters, hooks, note):
    def make(params, kind, options):
        decay = {"weight_decay": options["weight_decay"]} if "weight_decay" in options else {}
        return torch.optim.Adafactor(params, lr=learning_rate(torch, kind, options), **decay)

    make_instead(torch, "adafactor", (torch.optim.Adam, torch.optim.AdamW), make, note)

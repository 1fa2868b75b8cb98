"""A script on several devices computes what it computes on one: two and three processes on the CPU, real numbers."""

import pytest
from test_remedies import LANGUAGE_MODEL, LOOP, remedy, worst

SPREAD = ["zero1", "fsdp2"]


def spread(trainer, program, id, world=2, more=(), **options):
    """What each process computed, with shares of weights put together."""
    return trainer.ranks(WHOLE + program + WHOLE_RESULT, {"id": id, "gpus": world}, *more, world=world, **options)


WHOLE = ""
WHOLE_RESULT = """
result = [it.full_tensor() if hasattr(it, "full_tensor") else it for it in result]
"""


@pytest.mark.parametrize("id", SPREAD)
@pytest.mark.parametrize("loss", ["mean", "sum", "pairs"])
def test_the_same_losses_norms_and_weights(trainer, id, loss):
    """The last batch is of three samples, of which one process has two."""
    arguments = {"loss": loss, "clip": 0.3, "scheduler": True, "optimizer": "AdamW", "dtype": "float64"}
    plain = trainer.run(LOOP, arguments=arguments)
    for one in spread(trainer, LOOP, id, arguments=arguments):
        assert worst(plain, one) < 1e-9

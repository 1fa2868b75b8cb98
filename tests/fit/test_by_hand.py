"""What `fit` shows to be written by hand gives the training of the whole batch."""

import copy
import re

import pytest
from harness import ROOT


@pytest.fixture
def torch():
    """Imported by what uses it: whoever only lists the tests need not wait for it."""
    import torch

    return torch


def written(page):
    """The code that a remedy's page shows, block by block."""
    text = (ROOT / f"docs/remedies/{page}.md").read_text().split("## By hand")[1]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def with_loss(torch):
    """As models of transformers are: a mean over the labels that are not -100, the next word each."""

    class WithLoss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20)

        def forward(self, input_ids, labels):
            logits = self.head(self.words(input_ids))
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
            return type("Output", (), {"loss": loss})

    return WithLoss()


STEP = """
optimizer.zero_grad()
{forward_and_backward}
torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
optimizer.step()
schedule.step()
losses.append(loss.item())
"""


def trained(torch, model, forward_and_backward, batches):
    """The losses of three steps of a script with these lines, and the weights and gradients after them: the rest of its step stays."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    schedule, losses = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5), []
    for batch in batches:
        names = {"torch": torch, "model": model, "optimizer": optimizer, "schedule": schedule, "losses": losses, "parts": 3}
        exec(STEP.format(forward_and_backward=forward_and_backward), {**names, **batch})
    return [torch.tensor(losses), *(it.detach() for it in model.parameters()), *(it.grad for it in model.parameters())]


def test_parts_of_a_batch_that_differ_in_their_labels_train_as_the_whole_batch(torch):
    torch.manual_seed(0)
    batches = []
    for step in range(3):
        ids = torch.randint(20, (8, 9))
        labels = ids.masked_fill(torch.arange(9) >= torch.randint(2, 10, (8, 1)), -100)
        if step == 1:
            labels[:3] = -100  # The first part has no label.
        batches.append({"batch": {"input_ids": ids, "labels": labels}})
    model = with_loss(torch)
    whole = "loss = model(**batch).loss\nloss.backward()"
    torch.testing.assert_close(trained(torch, model, written("micro-batches")[1], batches), trained(torch, model, whole, batches))


def test_parts_of_inputs_and_targets_train_as_the_whole_batch(torch):
    torch.manual_seed(0)
    criterion = torch.nn.CrossEntropyLoss()
    batches = [{"inputs": torch.randn(8, 4), "targets": torch.randint(3, (8,)), "criterion": criterion} for _ in range(3)]
    model = torch.nn.Linear(4, 3)
    whole = "loss = criterion(model(inputs), targets)\nloss.backward()"
    torch.testing.assert_close(trained(torch, model, written("micro-batches")[0], batches), trained(torch, model, whole, batches))


def test_without_training_outputs_store_no_graph_and_gradients_of_inputs_store_that_of_one_part(torch):
    torch.manual_seed(0)
    model, inputs = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)), torch.randn(12, 4)
    whole = inputs.clone().requires_grad_()
    stored = most = 0

    class Stored:
        """What autograd stores for a backward pass, counted while it is there."""

        def __init__(self, tensor):
            nonlocal stored, most
            self.tensor = tensor
            stored += 1
            most = max(most, stored)

        def __del__(self):
            nonlocal stored
            stored -= 1

    with torch.autograd.graph.saved_tensors_hooks(Stored, lambda it: it.tensor):
        (wanted,) = torch.autograd.grad(model(whole).sum(), whole)
        of_one_pass, most = most, 0
        names = {"torch": torch, "model": model, "inputs": inputs, "parts": 4}
        exec(written("micro-batches")[2], names)
    assert 0 < most <= of_one_pass and stored == 0
    assert not names["outputs"].requires_grad
    torch.testing.assert_close(names["outputs"], model(inputs).detach())
    torch.testing.assert_close(names["gradients"], wanted)

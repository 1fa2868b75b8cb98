"""Programs of kinds that loops in `test_remedies` are not: on real numbers they compute with a remedy what they do without."""

import pytest
from test_remedies import remedy, worst

PENALTY = """
import torch
from torch import nn

torch.manual_seed(0)
block = lambda: nn.Sequential(nn.Linear(6, 6), nn.Softplus())
critic = nn.Sequential(block(), block(), nn.Linear(6, 1)).double()
optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)
result = []
for _ in range(4):
    real, fake = torch.randn(8, 6, dtype=torch.double), torch.randn(8, 6, dtype=torch.double)
    mixed = (real + fake).requires_grad_()
    gradient = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
    loss = critic(fake).mean() - critic(real).mean() + ((gradient.norm(dim=1) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    result.append(loss.detach())
result += [p.detach() for p in critic.parameters()]
"""

STATE = """
import torch
from torch import nn

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(11, 6), nn.LSTM(6, 6, 2), nn.Linear(6, 11)

    def forward(self, words, state):
        hidden, state = self.rnn(self.embed(words), state)
        return torch.log_softmax(self.out(hidden).view(-1, 11), 1), state

torch.manual_seed(0)
model = Words().double()
text = torch.randint(11, (41, 6))
state = tuple(torch.zeros(2, 6, 6, dtype=torch.double) for _ in range(2))
result = []
for start in range(0, 40, 8):
    model.zero_grad()
    state = tuple(it.detach() for it in state)
    guesses, state = model(text[start : start + 8], state)
    loss = nn.functional.nll_loss(guesses, text[start + 1 : start + 9].view(-1))
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.5 * p.grad
    result.append(loss.detach())
result += [it.detach() for it in state] + [p.detach() for p in model.parameters()]
"""

ATTENDS = """
import torch
from torch import nn

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_itself, self.to_others = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

    def forward(self, x, others):
        x = x + self.to_itself(x, x, x, need_weights=False)[0]
        return x + self.to_others(x, others, others, need_weights=False)[0]

torch.manual_seed(0)
model = Both().double()
model(torch.randn(3, 5, 8).double(), torch.randn(3, 4, 8).double()).pow(2).sum().backward()
result = [p.grad for p in model.parameters()]
"""

LEARNS_TO_LEARN = """
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
layer = lambda: nn.Sequential(nn.Linear(5, 5), nn.Tanh())
model = nn.Sequential(layer(), layer(), nn.Linear(5, 2)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    x, y = torch.randn(2, 6, 5, dtype=torch.double), torch.randint(2, (2, 6))
    weights = dict(model.named_parameters())
    for _ in range(2):
        loss = nn.functional.cross_entropy(functional_call(model, weights, x[0]), y[0])
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = {name: it - 0.5 * g for (name, it), g in zip(weights.items(), gradients)}
    optimizer.zero_grad()
    nn.functional.cross_entropy(functional_call(model, weights, x[1]), y[1]).backward()
    optimizer.step()
result = [p.detach() for p in model.parameters()]
"""

COPIES = """
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
layer = lambda: nn.Sequential(nn.Linear(5, 5), nn.Tanh())
model = nn.Sequential(layer(), layer(), nn.Linear(5, 2)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
copies = {name: (2 * it.detach()).requires_grad_() for name, it in model.named_parameters()}
for _ in range(2):
    x, y = torch.randn(6, 5, dtype=torch.double), torch.randint(2, (6,))
    nn.functional.cross_entropy(functional_call(model, copies, x), y).backward()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
result = [it.grad for it in copies.values()]
"""

OTHERS = """
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)

def net():
    layer = lambda: nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5).eval(), nn.Tanh())
    return nn.Sequential(layer(), layer(), nn.Linear(5, 2)).double()

model, other = net(), net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
buffers = {name: it + 0.5 for name, it in model.named_buffers() if it.is_floating_point()}
for _ in range(2):
    x, y = torch.randn(6, 5, dtype=torch.double), torch.randint(2, (6,))
    nn.functional.cross_entropy(functional_call(model, dict(other.named_parameters()), x), y).backward()
    for it in model.modules():
        it.eval()
    nn.functional.cross_entropy(functional_call(model, buffers, x), y).backward()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
result = [it.grad for it in [*other.parameters(), *model.parameters()]]
"""

EVALUATED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x, labels=None):
        y = self.b(torch.relu(self.a(x)))
        loss = None if labels is None else nn.functional.cross_entropy(y, labels)
        return y if loss is None else {"loss": loss, "logits": y}

torch.manual_seed(0)
model = Net().double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, labels = torch.randn(8, 4, dtype=torch.double), torch.randint(3, (8,))
result, sizes = [], []
model.a.register_forward_hook(lambda m, i, o: sizes.append(len(o)))
for _ in range(3):
    optimizer.zero_grad()
    model(x, labels)["loss"].backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    for n in (19, 3):
        del sizes[:]
        more = torch.randn(n, 4, dtype=torch.double)
        told = model(more, labels.repeat(3)[:n])
        result += [told["loss"], told["logits"], model(more)]
        result.append(torch.tensor(max(sizes)))
"""

GENERATED = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=29)
model = LlamaForCausalLM(config).double().eval()
prompts = torch.randint(3, 29, (5, 6))
sizes = []
model.model.layers[0].register_forward_hook(lambda m, i, o: sizes.append(len(i[0])))
with torch.inference_mode():
    out = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=7, do_sample=False, pad_token_id=0)
result = [out.clone(), torch.tensor(max(sizes))]
"""


@pytest.mark.parametrize("id", ["checkpoint", "micro-batches", "offload"])
def test_a_gradient_may_have_a_gradient(trainer, id):
    assert worst(trainer.run(PENALTY), trainer.run(PENALTY, remedy(id))) < 1e-9


@pytest.mark.parametrize("id", ["checkpoint", "micro-batches"])
def test_what_has_other_weights_for_a_call_does_not_run_again_with_its_own(trainer, id):
    assert worst(trainer.run(LEARNS_TO_LEARN), trainer.run(LEARNS_TO_LEARN, remedy(id))) < 1e-9
    assert worst(trainer.run(COPIES), trainer.run(COPIES, remedy(id))) < 1e-9
    assert worst(trainer.run(OTHERS), trainer.run(OTHERS, remedy(id))) < 1e-9


def test_a_state_may_go_from_call_to_call_and_time_and_batch_be_one_dimension(trainer):
    assert worst(trainer.run(STATE), trainer.run(STATE, remedy("micro-batches"))) < 1e-9


def test_what_is_one_tensor_stays_one_when_a_block_runs_again(trainer):
    assert worst(trainer.run(ATTENDS), trainer.run(ATTENDS, remedy("checkpoint"))) < 1e-9


def test_an_evaluation_goes_in_parts_no_larger_than_those_of_training(trainer):
    *plain, plain_size = trainer.run(EVALUATED)[:4]
    *parts, size = trainer.run(EVALUATED, remedy("micro-batches"))[:4]
    assert worst(plain, parts) < 1e-12
    assert (int(plain_size), int(size)) == (19, 3)


@pytest.mark.soak
def test_generate_goes_in_parts_of_its_prompts(trainer):
    plain, parts = trainer.run(GENERATED), trainer.run(GENERATED, remedy("micro-batches"))
    assert plain[0].equal(parts[0])
    assert (int(plain[1]), int(parts[1])) == (5, 2)

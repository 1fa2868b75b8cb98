"""Checkpointing that is switched on and does nothing is named where no layer was checkpointed in a pass that trains; nowhere else."""

import pytest

LAYERS = """
import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint
class Layer(nn.Module):
    in_either_mode = False
    def __init__(self):
        super().__init__()
        self.gradient_checkpointing = False
        self.inner = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    def forward(self, x):
        if self.gradient_checkpointing and (self.training or self.in_either_mode):
            return checkpoint(self.inner, x, use_reentrant=False)
        return self.inner(x)
net = nn.Sequential(*[Layer() for _ in range(4)], nn.Linear(64, 1)).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
def switch_on():
    for it in net[:4]: it.gradient_checkpointing = True
def train(wants=False):
    for _ in range(3):
        x = torch.randn(32, 64, device="cuda", requires_grad=wants)
        opt.zero_grad(); net(x).sum().backward(); opt.step()
"""
CODE = "checkpointing-no-effect"


@pytest.mark.parametrize("wants", [False, True])
def test_a_model_that_trains_in_evaluation_mode_checkpoints_nothing(run, wants):
    # `enable_input_require_grads` makes inputs want gradients, and does not help.
    assert run(LAYERS + "switch_on(); net.eval(); train(%r)" % wants).process.notes.count(CODE) == 1


def test_a_wrapper_in_training_mode_does_not_hide_that_its_model_is_not(run):
    # `get_peft_model` makes one, around what `from_pretrained` leaves in evaluation mode.
    assert run(LAYERS + "switch_on(); net.eval(); net = nn.Sequential(net); train()").process.notes.count(CODE) == 1


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    "text",
    [
        "switch_on(); train()",  # inputs that want no gradient
        "switch_on(); train(True)",
        "net.eval(); train()",  # no checkpointing
        "Layer.in_either_mode = True; switch_on(); net.eval(); train()",
        "switch_on(); train(); net.eval(); net(torch.randn(4, 64, device='cuda'))",
        "switch_on(); net.eval().requires_grad_(False); net = nn.Sequential(net, nn.Linear(1, 1).cuda()); opt = torch.optim.SGD(net[1].parameters(), 0.1); train()",
        "switch_on(); train(); net.eval()\nwith torch.no_grad(): net(torch.randn(4, 64, device='cuda'))\nnet.train(); train()",
    ],
)
def test_layers_that_are_checkpointed_and_evaluations_are_no_finding(run, text):
    assert CODE not in run(LAYERS + text, stop="until-exit").process.notes


BY_HAND = """
import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.use, self.layers = True, nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            {call}
        return x
net = Net().cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
{mode}
for _ in range(3):
    opt.zero_grad(); net(torch.randn(32, 64, device="cuda")).sum().backward(); opt.step()
"""

CALLS = [
    ("x = checkpoint(layer, x, use_reentrant=False) if self.training else layer(x)", "net.eval()", 1),
    ("x = checkpoint(layer, x, use_reentrant=False) if self.use and self.training else layer(x)", "net.eval()", 1),
    ("x = checkpoint(layer, x, use_reentrant=False) if self.use and self.training else layer(x)", "net.eval(); net.use = False", 0),
    ("x = checkpoint(layer, x, use_reentrant=False) if self.training and len(x) > 64 else layer(x)", "net.eval()", 0),
    ("x = checkpoint(layer, x, use_reentrant=False) if self.training else layer(x)", "net.train()", 0),
    ("x = checkpoint(layer, x, use_reentrant=False)", "net.eval()", 0),
    ("x = nn.functional.dropout(layer(x), 0.1) if self.training else layer(x)", "net.eval()", 0),
]


@pytest.mark.matrix(3)
@pytest.mark.parametrize(("call", "mode", "told"), CALLS)
def test_a_forward_that_checkpoints_in_training_mode_by_its_own_text(run, call, mode, told):
    assert run(BY_HAND.format(call=call, mode=mode)).process.notes.count(CODE) == told


def test_a_pass_that_runs_out_before_its_backward_pass_says_it_too(run):
    text = LAYERS + "switch_on(); net.eval()\ntorch.cuda.set_per_process_memory_fraction(0.01)\nx = torch.randn(1 << 20, 64, device='cuda')\nfor _ in range(9):\n    loss = net(x).sum()\n    loss.backward()"
    process = run(text).process
    assert process.one("oom")["phase"] == "forward" and CODE in process.notes


CUT = """
import torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint
frozen, layer, head = nn.Linear(64, 64).cuda().requires_grad_(False), nn.Linear(64, 64).cuda(), nn.Linear(64, 1).cuda()
layer.requires_grad_(%r)
def forward(x):
    h = frozen(x)
    if %r: h.requires_grad_()
    return head(checkpoint(layer, h, use_reentrant=%r))
opt = torch.optim.SGD([*layer.parameters(), *head.parameters()], 0.1)
for _ in range(3):
    opt.zero_grad(); forward(torch.randn(32, 64, device="cuda")).sum().backward(); opt.step()
"""


@pytest.mark.parametrize(
    "trained, wants, reentrant, found",
    [(True, False, True, True), (True, True, True, False), (True, False, False, False), (False, False, True, False)],
)
def test_checkpointing_that_cuts_the_graph_is_named_where_something_inside_is_to_be_trained(run, trained, wants, reentrant, found):
    notes = run(CUT % (trained, wants, reentrant), stop="until-exit").process.notes
    assert ("checkpointing-no-gradients" in notes) == found, notes

"""Scripts whose batches differ in length, with an evaluation: what `fit` says of them without being asked."""

import json

from harness import PYTHON

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    def __len__(self): return 400
    def __getitem__(self, i): return torch.full((16 + i * 7 % 400,), 1 + i % 90)

def collate(texts): return nn.utils.rnn.pad_sequence(texts, batch_first=True)

net = nn.Sequential(nn.Embedding(100, 512), *[nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)) for _ in range(8)], nn.Linear(512, 100)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(3):
    for x in DataLoader(Texts(), batch_size=32, shuffle=True, collate_fn=collate):
        x = x.cuda()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        for x in DataLoader(Texts(), batch_size={evaluated}, collate_fn=collate):
            scores = net(x.cuda())
            pairs = scores[:, :, None, :{kept}].expand(-1, -1, 64, -1).contiguous()
"""


def fitted(plimsoll, budget, **values):
    script, path = plimsoll.folder / "train.py", plimsoll.folder / "fit.json"
    script.write_text(SCRIPT.replace("{evaluated}", str(values["evaluated"])).replace("{kept}", str(values["kept"])))
    options = ["--gpu", "h200", "--budget", budget, "--allow", "allocator,micro-batches,checkpoint", "--plan", "plan.toml", "--json", path]
    ran = plimsoll.run("fit", *options, "--", PYTHON, script, timeout=600)
    return ran, json.loads(path.read_text())


def test_an_evaluation_that_does_not_fit_by_itself_ends_the_search(plimsoll):
    ran, found = fitted(plimsoll, "1500MiB", evaluated=400, kept=100)
    assert ran.code == 1 and found["outcome"] == "does_not_fit", ran
    assert not found["plans"] and found["runs"] <= 8, found
    alone = found["evaluation_alone"]
    assert "train.py:23" in alone["at"] and found["limit"]["bytes"] < alone["needs_bytes"], alone
    assert "batches differ in size (samples 16 to 415, in 400 samples)" in ran.stderr, ran
    assert "the evaluation at train.py:23" in ran.stdout and "a smaller batch in the evaluation's DataLoader" in ran.stdout, ran


def test_the_longest_batch_decides_and_the_allocator_is_in_the_plan(plimsoll):
    ran, found = fitted(plimsoll, "1500MiB", evaluated=8, kept=1)
    assert ran.code == 0 and found["outcome"] == "fits_with_plan", ran
    plan = found["plans"][0]
    assert plan["remedies"][0].startswith("allocator (expandable_segments:True)"), plan
    assert plan["needs_bytes"] <= found["limit"]["bytes"] < found["as_it_is"]["needs_bytes"]
    assert found["seen"]["evaluation"], found["seen"]

"""A sparse matrix times a sparse one: how many elements the result has is decided by where theirs stand."""

import json

SCRIPT = """
import json, torch

def graph(seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, 2000, (2, 10000), generator=generator)
    return torch.sparse_coo_tensor(index, torch.rand(10000), (2000, 2000)).coalesce().cuda()

a, b = graph(1), graph(2)
a.requires_grad_(True)
layer = torch.nn.Linear(16, 8).cuda()
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
two = torch.sparse.mm(a, b)
for _ in range(3):
    loss = torch.sparse.mm(two.detach(), layer(torch.randn(2000, 16).cuda())).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
rows = graph(3).to_sparse_csr()
print(json.dumps([[two._nnz(), (rows @ rows)._nnz()]]))
"""


def test_the_product_is_as_full_as_that_of_random_graphs(plimsoll):
    (plimsoll.folder / "graph.py").write_text(SCRIPT)
    ran = plimsoll.predict("graph.py", options=("--gpu", "rtx3090", "--until-exit"))
    assert ran.code == 0, ran
    (line,) = (it for it in ran.stdout.splitlines() if it.startswith("[["))
    ((coo, csr),) = json.loads(line)
    # On the CPU, 49,828 and 49,548.
    assert abs(coo - 49828) < 500 and abs(csr - 49548) < 500, line
    assert "spread evenly" in " ".join(it["text"] for it in ran.report["notes"])

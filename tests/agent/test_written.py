"""Statements that take far more memory than another form of the same, as they stand in a script's text."""

import ast

import pytest
from plimsoll_agent.run import written

FORMS = {
    "u, s, v = torch.linalg.svd(g)": "full-matrices",
    "u = torch.svd(g, some=False)": "full-matrices",
    "u, s, v = torch.linalg.svd(g, full_matrices=False)": None,
    "u, s, v = torch.linalg.svd(g, False)": None,
    "u, s, v = torch.svd(g)": None,
    "h = torch.autograd.functional.hessian(f, x, vectorize=True)": "vectorized",
    "h = torch.autograd.functional.hessian(f, x)": None,
    "d = (a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(-1)": "all-pairs",
    "d = torch.sum((a[:, None] - b[None]) ** 2, 2)": "all-pairs",
    "s = F.cosine_similarity(a[:, None], b[None], dim=-1)": "all-pairs",
    "d = a[:, None] - b[None, :]": None,
    "d = a[:, None] - b[None, :]\nd = d.norm(dim=-1)": "all-pairs",
    "y = (x - x.mean(-1)[:, None]).sum(0)": None,
    "y = x.unsqueeze(1) @ self.weight": "copies-in-product",
    "y = torch.matmul(x[:, None], w)": "copies-in-product",
    "y = x.unsqueeze(-1) @ y.unsqueeze(1)": None,
    "y = x @ w.T": None,
    "corner = torch.max(a[:, None, :2], b[:, :2])": "all-pairs",
    "most = torch.max(x[:, None], 1)": None,
    "mask = causal[None, None].repeat(n, 1, 1, 1).to(dtype)": "copies-by-repeat",
    "x = torch.tile(x, (n, 1))": "copies-by-repeat",
    "names = names.repeat(2)": None,
    "table = torch.zeros(nodes, nodes, device=d)": "square-table",
    "table = x.new_full((len(x), len(x)), 0.5)": "square-table",
    "basis = torch.eye(len(moment))": "square-table",
    "table = torch.zeros(rows, columns)": None,
    "turn = torch.eye(3)": None,
    "adjacency = to_dense_adj(edges)[0]": "made-dense",
}


@pytest.mark.parametrize("text, form", FORMS.items())
def test_a_form_of_which_another_takes_less(text, form):
    assert [it[2] for it in written.of_text(ast.parse(text))] == ([form] if form else [])


def test_the_lines_of_a_statement():
    text = "def f(a, b):\n    return torch.sum(\n        (a[:, None] - b[None]).abs(),\n        -1)\n"
    assert list(written.of_text(ast.parse(text))) == [(2, 4, "all-pairs")]

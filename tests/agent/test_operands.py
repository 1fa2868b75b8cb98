"""What the names in the line that ran out stand for: read in the variables of its function, and nothing of the line runs."""

import sys

import torch
from plimsoll_agent.run import frames, operands


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4, 3))

    @property
    def never(self):
        raise AssertionError

    def forward(self, x, rows, parts):
        return (
            told(),
            x.view(rows, -1) @ self.weight.T, self.never if rows < 0 else torch.stack(parts), x, 2 * rows
        )[0]


def told():
    return operands.of_line(torch, sys._getframe(1))


def test_shapes_and_whole_numbers_in_the_order_of_the_text(monkeypatch):
    monkeypatch.setattr(frames, "is_users", lambda file: file == __file__)
    found = Layer()(torch.zeros(2, 3), 2, [torch.zeros(5, dtype=torch.int64)] * 7)
    assert found == [
        {"name": "x", "shape": [2, 3], "type": "float32", "members": None},
        {"name": "rows", "value": 2},
        {"name": "self.weight", "shape": [4, 3], "type": "float32", "members": None},
        {"name": "parts", "shape": [5], "type": "int64", "members": 7},
    ]


def test_without_a_line_of_the_users_there_is_none(monkeypatch):
    monkeypatch.setattr(frames, "is_users", lambda file: False)
    assert Layer()(torch.zeros(2, 3), 2, [torch.zeros(5)]) == []

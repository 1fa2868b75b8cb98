"""Whether what a line reads of the device becomes a size, by the script's text."""

import sys

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "agent"))

from plimsoll_agent.values import sizes  # noqa: E402


def becomes_size(folder, text, line):
    path = folder / "train.py"
    path.write_text(text)
    return sizes.becomes_size(str(path), line)


@pytest.mark.parametrize("line", ["x = torch.zeros(int(n.max()))", "y = x[: keep(x)]", "x.view(-1, n.item())"])
def test_a_call_that_may_read(tmp_path, line):
    assert becomes_size(tmp_path, line + "\n", 1)


@pytest.mark.parametrize(
    "line",
    [
        "model(torch.randn(int(sys.argv[1]), 1024)).pow(2).mean().backward()",
        "model(torch.randn(int(os.environ['BATCH']), int(os.environ.get('LENGTH', 8)))).sum().backward()",
        "total += torch.zeros(8, 8).sum().item()",
    ],
)
def test_the_words_of_the_command_are_not_read_of_the_device(tmp_path, line):
    """The reading may be any other call of that line: a remedy's, or that of an optimizer."""
    assert not becomes_size(tmp_path, line + "\n", 1)

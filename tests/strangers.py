"""Names that a stranger chose, and what must not come of them."""

import unicodedata

HOSTILE = (
    "e\x1b]52;c;eA\x07\x1b[2J\x1b[1;32mv\x1b[0m\x08\x7f\x9b31m\u202e\u2066\u200f\u200b\ufeff\u2028\u2029\t\r\n"
    "FAKE\n::error::x\n##[error]y\n  ::warning::z ##vso[task.x]<img src=x>&|`@team [a](b)**c** https:x.y"
)
"""What a terminal, a workflow of GitHub or of Azure, XML, HTML and Markdown would obey. It has no slash, so that it is the name of a file, too."""


def assert_obeyed_by_nobody(text):
    """Nothing of `text` is taken for more than text by a terminal, or by who reads the log of a job."""
    for line in text.split("\n"):
        hidden = [it for it in line if unicodedata.category(it) in ("Cc", "Cf", "Zl", "Zp")]
        assert not hidden, (hidden, line)
        assert not line.lstrip().startswith(("::", "FAKE")), line
        assert "##[" not in line and "##vso[" not in line, line

"""Scripts whose files, functions and classes have names that a stranger chose: what is printed, and what is written for programs, which their
own readers read."""

import json
import os
import re
import subprocess
import textwrap
import urllib.parse
import xml.etree.ElementTree as ElementTree

import pytest
from harness import COLD, ROOT, binary
from markdown_it import MarkdownIt
from strangers import HOSTILE, assert_obeyed_by_nobody

SCRIPT = f"""
import torch

NAME = {HOSTILE!r}
space = dict(torch=torch)
exec(compile("def f(n):\\n    return torch.randn(n, 512, device='cuda')\\n", NAME + ".py", "exec"), space)
space["f"].__code__ = space["f"].__code__.replace(co_name=NAME)
Net = type(NAME, (torch.nn.Module,), dict(forward=lambda self, x: self.get_submodule(NAME.replace(".", ""))(x)))
model = Net()
model.add_module(NAME.replace(".", ""), torch.nn.Linear(512, 512))
model.cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(6):
    optimizer.zero_grad()
    model(space["f"](2048)).square().mean().backward()  # {HOSTILE.splitlines()[-1]}
    optimizer.step()
"""
FILE = HOSTILE + ".py"


@pytest.fixture
def hostile(plimsoll):
    plimsoll.script(SCRIPT, FILE)
    return plimsoll


def run(plimsoll, *words):
    """What it printed, which nobody obeys."""
    ran = plimsoll.run(*words, environment=plimsoll.cold())
    for text in (ran.stdout, ran.stderr):
        assert_obeyed_by_nobody(text)
    return ran


@pytest.mark.soak
def test_a_prediction_and_what_a_recording_becomes(hostile):
    ran = run(hostile, "predict", "--gpu", "t4", "--record", "run.zip", "--", COLD, FILE)
    assert ran.code == 0 and "@team [a](b)**c** https:x.y" in ran.stdout, ran
    json.loads(run(hostile, "explain", "run.zip", "--json", "-").stdout)
    assert "by backward of n  ::warning::z \\x23#vso[task.x]" in run(hostile, "explain", "run.zip").stdout
    assert run(hostile, "export", "run.zip", "--to", "flamegraph,perfetto,html,parquet").code == 0
    svg = ElementTree.parse(hostile.folder / "run.flamegraph.svg")
    assert any("\\x1b]52" in (it.text or "") for it in svg.iter()), "the frames are there"
    assert not [it for it in svg.iter() if it.tag.endswith("img")]
    trace = json.loads((hostile.folder / "run.perfetto.json").read_text())
    assert trace["traceEvents"]
    assert_obeyed_by_nobody((hostile.folder / "run.perfetto.json").read_text())


@pytest.mark.soak
def test_what_fails_is_told_with_its_names(hostile):
    hostile.script(f"import torch\nclass It(Exception): pass\nIt.__name__ = {HOSTILE!r}\nraise It({HOSTILE!r})\n", FILE)
    ran = hostile.run("predict", "--gpu", "t4", "--", COLD, FILE, environment=hostile.cold())
    # The traceback is Python's own.
    own = [line for line in ran.stderr.split("\n") if line.startswith("plimsoll: ")]
    assert own and ran.code == 2, ran
    for line in own:
        assert_obeyed_by_nobody(line)


def markdown_of(text):
    """What a reader of Markdown makes of it: each token and what is inside, apart from code."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        yield token
        yield from token.children or ()


def assert_plain_markdown(text):
    harmless = {"text", "code_inline", "strong_open", "strong_close", "softbreak", "inline", "hr"}
    harmless |= {f"{it}_{end}" for it in ("heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "bullet_list", "list_item") for end in ("open", "close")}
    rows, cells = [], 0
    for token in markdown_of(text):
        assert token.type in harmless, (token.type, token.content)
        if token.type == "text":
            assert not re.search(r"@\w|<|\[|https?:|www\.|#\d", token.content), token.content
        if token.type == "tr_open":
            cells = 0
        cells += token.type in ("td_open", "th_open")
        if token.type == "tr_close":
            rows.append(cells)
    assert set(rows) <= {4, 5}, rows


@pytest.mark.soak
def test_reports_of_check_are_read_by_their_readers(hostile):
    name = re.sub(r"[^ -~]", "", HOSTILE)
    ran = run(hostile, "check", "--add", name, "--gpu", "t4", "--steps", "3", "--", COLD, FILE)
    assert ran.code == 0, ran
    hostile.script(SCRIPT.replace("2048", "4096"), FILE)
    outputs = [word for it in ("json", "xml", "md", "sarif", "txt") for word in ("-o", f"a.{it}")]
    ran = run(hostile, "check", *outputs)
    assert ran.code == 1 and ran.stdout.startswith("CHANGED "), ran
    written = {it: (hostile.folder / f"a.{it}").read_text() for it in ("json", "xml", "md", "sarif", "txt")}
    for text in written.values():
        assert_obeyed_by_nobody(text)
    [script] = json.loads(written["json"])["scripts"]
    assert script["name"] == name and script["lines"], script
    suite = ElementTree.fromstring(written["xml"])[0]
    assert (suite.get("tests"), suite.get("failures"), suite[0].get("name")) == ("1", "1", name.replace("##", r"\x23#"))
    [result] = json.loads(written["sarif"])["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert re.fullmatch(r"[\w.~/-]*(%[0-9A-F]{2}[\w.~/-]*)*", uri, re.ASCII) and "src=x" in urllib.parse.unquote(uri), uri
    assert "](" not in result["message"]["text"]
    assert_plain_markdown(written["md"])
    code = [it.content for it in markdown_of(written["md"]) if it.type == "code_inline"]
    assert any("<img src=x>" in it and "@team" in it for it in code), code
    # One that fails says why, in each form.
    hostile.script(f"import torch\nraise RuntimeError({HOSTILE!r})\n", FILE)
    ran = run(hostile, "check", *outputs)
    assert ran.code == 2 and ran.stdout.startswith("COULD NOT TELL "), ran
    assert_plain_markdown((hostile.folder / "a.md").read_text())
    assert ElementTree.parse(hostile.folder / "a.xml").getroot()[0].get("errors") == "1"
    for format in ("text", "json", "markdown", "junit", "sarif"):
        assert run(hostile, "check", "--format", format).code == 2


def test_goldens_of_a_stranger_are_refused_or_read(hostile):
    goldens = hostile.folder / "plimsoll-check.toml"
    goldens.write_text(f"version = 1\n[scripts.{json.dumps(HOSTILE)}]\ncommand = ['true']\ngpu = 't4'\n".replace("\x7f", "\\u007f"))
    ran = run(hostile, "check")
    ran.assert_sentence("expected visible characters")


def test_what_lint_says_is_read_by_its_readers(plimsoll):
    leaky = "import torch\nmodel = torch.nn.Linear(8, 8).cuda()\nkept = []\nfor x in data:\n    loss = model(x).sum()\n    loss.backward()\n    kept.append(loss)\n"
    plimsoll.script(leaky, FILE)
    plimsoll.script("def f(:\n", "broken " + FILE)
    ran = run(plimsoll, "lint", ".")
    assert ran.code == 2 and "\\x1b]52" in ran.stdout, ran
    results = json.loads(run(plimsoll, "lint", ".", "--format", "sarif").stdout)["runs"][0]["results"]
    assert urllib.parse.unquote(results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]) == FILE
    assert json.loads(run(plimsoll, "lint", ".", "--format", "json").stdout)["diagnoses"][0]["file"] == "./" + FILE
    ran = plimsoll.run("lint", ".", "--format", "github")
    first, second = ran.stdout.splitlines()
    assert first.startswith("::warning title=plimsoll (PLM") and second.startswith("::error title=plimsoll::"), ran
    assert_obeyed_by_nobody(first.removeprefix("::warning") + "\n" + second.removeprefix("::error title=plimsoll::./"))


def test_a_path_that_does_not_exist(plimsoll):
    # Behind an `@` stands a moment.
    for words in (["explain"], ["replay"], ["diff", HOSTILE.replace("@", "")], ["view"], ["lint"]):
        run(plimsoll, *words, HOSTILE.replace("@", "")).assert_sentence("\\x1b]52;c;eA\\x07\\x1b[2J")


def test_python_shows_names_by_the_same_rule(hostile):
    code = f"""
        import sys; sys.path.insert(0, {str(ROOT / "python")!r})
        import plimsoll
        from plimsoll._held import Held, Holder
        from plimsoll._printable import printable
        from plimsoll._results import Line
        from plimsoll._sizes import Size
        name = {HOSTILE!r}
        size = Size(1 << 30)
        print(printable("训练 é 🎉\\u3000") == "训练 é 🎉\\u3000", printable("\\x1b\\n\\u202e") == "\\\\x1b\\\\n\\\\u{{202e}}")
        print(Line(name, 3, name, size, "activations"))
        print(Held(errors=(Holder(name, size),), yours=(Holder(name, size),), error=name))
        print(repr(plimsoll._view.View("", name=name, height=1)))
        print(plimsoll._watch.Alarm("c", name, 1, name, 1, None, None, {{}}))
    """
    ran = subprocess.run([COLD, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=dict(os.environ, PLIMSOLL_BIN=binary()))
    assert ran.returncode == 0 and ran.stdout.startswith("True True\n"), ran
    assert_obeyed_by_nobody(ran.stdout)

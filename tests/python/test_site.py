"""The documents as a whole: links lead somewhere, the site has each page, and what a page says the program says is what it says."""

import json
import re

import pytest
from harness import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", ROOT / "DESIGN.md", *DOCS.rglob("*.md")])
# Made when the site is built (tools/site_pages.py).
MADE = {"commands.md", "glossary.md"}


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(path):
    """As GitHub and mkdocs make them of headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", it)).strip().lower() for it in headings]
    return {it.replace(" ", "-") for it in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda it: str(it.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", without_code(page.read_text())):
        target = "".join(target)
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists():
            wrong.append(f"{target}: there is no such file")
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            wrong.append(f"{target}: there is no such heading; there are {sorted(anchors(path))}")
    assert not wrong, wrong


def test_the_site_has_each_page():
    nav = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)) - MADE
    # Pages of findings, remedies and rules are in a table; a coding agent reads the skill itself.
    pages = {str(it.relative_to(DOCS)) for it in DOCS.rglob("*.md") if it.parent.name not in ("findings", "lint", "remedies") and "skills" not in it.parts}
    pages |= {"findings/index.md", "lint/index.md", "remedies/index.md"}
    assert nav == pages, (sorted(nav - pages), sorted(pages - nav))


def messages():
    text = (DOCS / "troubleshooting.md").read_text().split("## What plimsoll itself says")[0]
    return re.findall(r"^### (.*?)\n\n```text\n(.*?)\n```\n\n`([\w/-]+)`", text, re.MULTILINE | re.DOTALL)


def test_every_message_has_a_code():
    assert len(messages()) == (DOCS / "troubleshooting.md").read_text().count("```text")


@pytest.mark.parametrize("heading, message, code", messages(), ids=lambda it: it.split("\n")[0][:40])
def test_a_message_is_explained_as_the_page_says(plimsoll, heading, message, code):
    (plimsoll.folder / "log.txt").write_text(message)
    ran = plimsoll.run("explain", "--json", "-", "log.txt")
    assert json.loads(ran.stdout)["cause"]["code"] == code, ran


def test_readme_is_no_longer_than_a_person_reads():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.soak
@pytest.mark.parametrize("framework", ["optuna", "hydra"])
def test_a_sweep_leaves_out_what_cannot_fit(program, framework):
    pytest.importorskip(framework)
    blocks = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", (DOCS / "python.md").read_text(), re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", (DOCS / "howto" / "sweeps.md").read_text(), re.MULTILINE | re.DOTALL)
    for name, text in blocks:
        (program.folder / name).write_text(text)
    from harness import PYTHON

    if framework == "optuna":
        ran = program.start(PYTHON, "sweep_optuna.py")
        assert re.findall(r"^(\d+) (\w+)$", ran.stdout, re.MULTILINE).count(("4194304", "PRUNED")) == 1, ran
        assert ("64", "COMPLETE") in re.findall(r"^(\d+) (\w+)$", ran.stdout, re.MULTILINE), ran
    else:
        ran = program.start(PYTHON, "sweep_hydra.py", "--multirun", "+batch_size=64,4194304")
        assert "trains: batch_size: 64" in ran.stdout and "left out: batch_size=4194304" in ran.stdout, ran

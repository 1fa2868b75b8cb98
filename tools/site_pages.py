"""The pages of the site that are not written by hand, and links that leave the documents. mkdocs calls this (mkdocs.yml)."""

import json
import os
import re
import subprocess
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
# Before `make build`, whatever the tests have built.
BINARY = os.environ.get("PLIMSOLL_BIN") or ROOT / "target" / "release" / "plimsoll"
SOURCES = "https://github.com/plimsoll-gpu/plimsoll/blob/main/"


def said(*words):
    """What the program prints, 80 columns wide, whatever the environment has."""
    environment = {name: it for name, it in os.environ.items() if not name.startswith("PLIMSOLL_")} | {"COLUMNS": "80", "NO_COLOR": "1"}
    return subprocess.run([BINARY, *words], env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def commands():
    """Each command's own help."""
    whole = said("--help")
    names = re.findall(r"^  ([a-z]+)  ", whole.split("Commands:")[1].split("Options:")[0], re.MULTILINE)
    parts = ["# Commands\n\nWhat `plimsoll COMMAND --help` says.\n", f"```text\n{whole}```\n"]
    parts += [f"## plimsoll {name}\n\n```text\n{said(name, '--help')}```\n" for name in names if name != "help"]
    return "\n".join(parts)


def glossary():
    """The words of the reports: a heading for each, so that search finds it."""
    parts = ["# Glossary\n\nThe words of the reports, as `plimsoll glossary` tells them.\n"]
    for line in said("glossary").rstrip().split("\n"):
        parts.append(line.strip() if line.startswith("  ") or not line else f"## {line.split(' (')[0]}\n\n*{line}*\n")
    return "\n".join(parts)


def findings():
    rules = json.loads(said("explain", "--list", "--json", "-"))["findings"]
    rows = [f"| [{it['code']}]({it['code'].replace('/', '-')}.md) | {it['title']} |" for it in rules]
    return "\n| code | |\n|---|---|\n" + "\n".join(rows) + "\n"


def remedies():
    table = (ROOT / "crates" / "remedies" / "src" / "table.rs").read_text()
    rows = re.findall(r'^    [A-Z0-9_]+ = "([a-z0-9-]+)",[^"]*"([^"]+)";', table, re.MULTILINE)
    return "\n| remedy | |\n|---|---|\n" + "".join(f"| [{id}]({id}.md) | {what} |\n" for id, what in rows)


def on_files(files, config):
    files.append(File.generated(config, "commands.md", content=commands()))
    files.append(File.generated(config, "glossary.md", content=glossary()))
    return files




def on_page_markdown(markdown, page, config, files):
    path = page.file.src_uri
    if path == "findings/index.md":
        markdown += findings()
    if path == "remedies/index.md":
        markdown += remedies()
    folder = Path("docs") / Path(path).parent

    def link(found):
        target = found[1]
        if re.match(r"[a-z]+:|#|/", target):
            return found[0]
        resolved = os.path.normpath(folder / target)
        is_a_page = resolved.startswith("docs/") and not resolved.startswith("docs/skills/")
        return found[0] if is_a_page else f"]({SOURCES}{resolved})"

    markdown = re.sub(r"\]\(([^)\s]+)\)", link, markdown)
    return markdown

"""The commands that the manual shows are run: every line `$ plimsoll ...` in a `console` block."""

import os
import re
import shlex

import pytest
from harness import COLD, PYTHON, ROOT, Plimsoll

# A deep network of convolutions, which the examples run, and four ranks, of which other tests have two.
LONG = ("train_resnet50.py", "--nproc-per-node 4")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples" / "README.md"]

TINY = """
import torch
layer = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(5):
    optimizer.zero_grad()
    layer(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""
OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.87 GiB (GPU 0; 14.76 GiB total capacity; 8.77 GiB already allocated; "
    "19.75 MiB free; 13.71 GiB reserved in total by PyTorch)"
)


def commands():
    seen = set()
    for page in PAGES:
        for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                # Several pages may show one command.
                if line.startswith("$ plimsoll ") and line not in seen:
                    seen.add(line)
                    marks = pytest.mark.soak if any(it in line for it in LONG) else ()
                    yield pytest.param(line.removeprefix("$ plimsoll "), id=f"{page.name}: {line[2:]}", marks=marks)


@pytest.mark.matrix(12)
@pytest.mark.parametrize("line", list(commands()))
def test_command_of_the_manual(line, cache, tmp_path):
    plimsoll = Plimsoll(tmp_path, cache)
    # The examples under the names that the pages use, and room for what the commands write.
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    # What a coding agent's page calls the user's files.
    (tmp_path / "tiny.py").write_text(TINY)
    (tmp_path / "oom.log").write_text(OOM)
    words = shlex.split(line.split("#")[0].split(" | ")[0])
    # The pages say python3; here that is the one with torch, whose folder has torchrun, too.
    path = os.pathsep.join([os.path.dirname(PYTHON), os.path.dirname(COLD), os.environ["PATH"]])
    ran = plimsoll.run(*words, environment=plimsoll.environment(PATH=path))
    assert ran.code in (0, 1), ran


def test_the_pages_give_each_card_the_memory_that_the_catalogue_gives_it(plimsoll):
    table = [re.split(" {2,}", it) for it in plimsoll.run("cards").stdout.splitlines()]
    sizes = {name.removeprefix("NVIDIA "): size for it in table if len(it) > 3 for name, size in ((it[0], it[2]), (it[1], it[2]))}
    assert sizes["rtx4090"] == sizes["GeForce RTX 4090"] == "23.49 GiB", table[:5]
    wrong, n = [], 0
    for page in PAGES:
        for name, size in re.findall(r"\b([\w-]+|NVIDIA [\w -]+?) \((\d+\.\d\d GiB)\)", page.read_text()):
            if name.removeprefix("NVIDIA ") in sizes:
                n += 1
                wrong += [(page.name, name, size)] * (sizes[name.removeprefix("NVIDIA ")] != size)
    assert n > 8 and wrong == [], (n, wrong)


def shown(page, beginning):
    """The block of `page` that has the line `beginning`, from there on."""
    for block in re.findall(r"^```\w+\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL):
        head, found, rest = block.partition(beginning)
        if found:
            return (found + rest).rstrip("\n").split("\n")
    raise AssertionError(f"{page} has no block with {beginning}")


@pytest.mark.parametrize(
    "options, pages",
    [([], [("README.md", "FITS rtx3060-12g"), ("docs/index.md", "FITS rtx3060-12g")]), (["--batch-size", "16"], [("docs/tutorial.md", "DOES NOT FIT rtx3060-12g")])],
)
def test_the_pages_show_what_is_printed_and_it_is_one_screen(plimsoll, options, pages):
    """On a terminal of 80 columns and 24 lines the default report shows its verdict: it is no longer than that."""
    (plimsoll.folder / "examples").symlink_to(ROOT / "examples")
    path = os.pathsep.join([os.path.dirname(PYTHON), os.environ["PATH"]])
    environment = plimsoll.environment(PATH=path, COLUMNS="80")
    ran = plimsoll.run("predict", "--gpu", "rtx3060-12g", "--", "python3", "examples/finetune_gpt2.py", *options, environment=environment)
    printed = ran.stdout.rstrip("\n").split("\n")
    for page, beginning in pages:
        expected = shown(page, beginning)
        first = next(n for n, it in enumerate(printed) if it.startswith(beginning))
        assert printed[first : first + len(expected)] == expected, page
        # The tutorial says that it shows the beginning.
        assert page == "docs/tutorial.md" or printed[first:] == expected, page
        assert len(printed) - first <= 23, printed[first:]


def test_the_page_on_check_shows_its_first_screen():
    screen = (ROOT / "docs" / "pictures" / "screens" / "check-changed-80x24.txt").read_text().strip("\n").split("\n")
    assert shown("docs/check.md", "CHANGED train") == screen


@pytest.mark.soak
@pytest.mark.parametrize(
    "words, pages",
    [
        ("fit --gpu rtx3060-12g -- python3 examples/finetune_gpt2.py --batch-size 16", [("docs/fit.md", "FITS with a plan"), ("docs/tutorial.md", "FITS with a plan")]),
        ("fit --find-max batch=1..2048 --gpu rtx4090 -- python3 examples/finetune_gpt2.py --batch-size {batch}", [("docs/fit.md", "batch=24 is the largest")]),
        ("check --add gpt2 --gpu rtx3060-12g -- python3 examples/finetune_gpt2.py && check", [("docs/check.md", "AS IT WAS gpt2")]),
        ("predict --gpu rtx3090 -- python3 examples/train_resnet50.py", [("docs/predict.md", "FITS rtx3090")]),
    ],
)
def test_the_pages_show_what_longer_commands_print(plimsoll, words, pages):
    (plimsoll.folder / "examples").symlink_to(ROOT / "examples")
    environment = plimsoll.environment(PATH=os.pathsep.join([os.path.dirname(PYTHON), os.environ["PATH"]]), COLUMNS="80")
    for command in words.split(" && "):
        ran = plimsoll.run(*shlex.split(command), environment=environment)
    for page, beginning in pages:
        # How long it took is no promise, and who shows `python` means the one with torch.
        expected = [it.replace("-- python ", "-- python3 ") for it in shown(page, beginning) if "started your script" not in it]
        at = ran.stdout.index(beginning)
        assert ran.stdout[at:].split("\n")[: len(expected)] == expected, (page, ran)

"""`--worst-size`: every image as large as the largest that may come, and what goes with it."""

import pytest

LOADER = """
import torch
from dataclasses import dataclass
from torch.utils.data import DataLoader

@dataclass
class Batch:
    image: torch.Tensor
    mask: torch.Tensor

class Pictures:
    def __len__(self): return 6
    def __getitem__(self, i):
        h, w = 24 + 4 * (i % 3), 40
        return {item}

net = torch.nn.Conv2d(3, 4, 3, padding=1).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def shown(it):
    if isinstance(it, torch.Tensor):
        return "x".join(map(str, it.shape)) + " " + type(it).__name__.replace("Tensor", "") + str(it.dtype).removeprefix("torch.")
    if isinstance(it, dict):
        return {{k: shown(v) for k, v in it.items()}}
    return [shown(v) for v in (vars(it).values() if isinstance(it, Batch) else it)]
for batch in DataLoader(Pictures(), batch_size=2, collate_fn={collate}, num_workers={workers}):
    print(repr(shown(batch)))
    net(torch.zeros(1, 3, 8, 8, device="cuda")).sum().backward()
    optimizer.step()
    break
"""


def first_batch(run, item, collate="None", workers=0, size="64x96"):
    program = LOADER.format(item=item, collate=collate, workers=workers)
    r = run(program, stop="until-exit", env={"PLIMSOLL_IMAGE_SIZE": size})
    assert r.returncode == 0, r.stderr
    (process,) = [it for it in r.processes if it.all("worst")]
    assert "worst-size" in process.notes
    return eval(r.stdout), process.one("worst")


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    "item, seen",
    [
        # A classifier.
        ("(torch.rand(3, 24, 24), 5)", ["2x3x64x96 float32", "2 int64"]),
        # A mask goes with its image, and so does a heat map of a quarter.
        (
            "dict(image=torch.rand(3, 32, 48), mask=torch.zeros(32, 48, dtype=torch.long), heat=torch.zeros(17, 8, 12))",
            {"image": "2x3x64x96 float32", "mask": "2x64x96 int64", "heat": "2x17x16x24 float32"},
        ),
        # Two sizes of one picture, and crops of two sizes: their ratio stays.
        ("(torch.rand(3, 16, 24), torch.rand(3, 32, 48))", ["2x3x32x48 float32", "2x3x64x96 float32"]),
        ("[torch.rand(3, 24, 36), torch.rand(3, 10, 15)]", ["2x3x64x96 float32", "2x3x27x40 float32"]),
        # Bytes with their colours last; a video; boxes and matrices stay as they are.
        ("torch.zeros(24, 36, 3, dtype=torch.uint8)", "2x64x96x3 uint8"),
        ("torch.rand(5, 3, 24, 36)", "2x5x3x64x96 float32"),
        ("(torch.rand(3, 24, 36), torch.rand(9, 4), torch.eye(3))", ["2x3x64x96 float32", "2x9x4 float32", "2x3x3 float32"]),
        # More channels than colours have.
        ("(torch.rand(13, 24, 36), torch.rand(6))", ["2x13x64x96 float32", "2x6 float32"]),
    ],
)
def test_images_that_are_one_tensor(run, item, seen):
    assert first_batch(run, item)[0] == seen


BOXES = "boxes=torch.rand(i + 1, 4), masks=torch.zeros(i + 1, h, w, dtype=torch.uint8), keypoints=torch.rand(i + 1, 17, 3)"


def test_a_list_of_images_of_various_sizes(run):
    """As detectors take it: masks are made larger with their image; boxes and keypoints are not stretched."""
    target = {"masks": "%dx64x96 uint8", "boxes": "%dx4 float32", "keypoints": "%dx17x3 float32"}
    expected = [["3x64x96 float32"] * 2, [{k: v % n for k, v in target.items()} for n in (1, 2)]]
    seen, said = first_batch(run, "(torch.rand(3, h, w), dict(%s))" % BOXES, "lambda rows: tuple(zip(*rows))")
    assert seen == expected and said["size"] == [64, 96] and "3x64x96 instead of 3x24x40" in said["tensors"]


def test_other_containers_and_workers(run):
    item = "Batch(torch.rand(3, h, w), torch.zeros(h, w, dtype=torch.bool))"
    seen, _ = first_batch(run, item, "lambda rows: rows", workers=1)
    assert seen == [["3x64x96 float32", "64x96 bool"]] * 2


def test_tensors_of_a_kind_of_their_own_stay_of_it(run):
    pytest.importorskip("torchvision")
    item = "__import__('torchvision.tv_tensors').tv_tensors.Image(torch.rand(3, h, w))"
    assert first_batch(run, item, "lambda rows: rows")[0] == ["3x64x96 Imagefloat32"] * 2


def test_what_has_as_many_pixels_stays(run):
    seen, said = first_batch(run, "torch.rand(3, 48, 32)", size="32x48")
    assert seen == "2x3x48x32 float32" and said["tensors"] == []
    seen, _ = first_batch(run, "torch.rand(3, h, w)", "lambda rows: rows", size="25x40")
    assert seen == ["3x25x40 float32", "3x28x40 float32"], "the second one is larger"


def test_where_no_image_comes_it_is_said(run):
    text = LOADER.format(item="(torch.arange(9), torch.rand(4))", collate="None", workers=0)
    r = run(text, env={"PLIMSOLL_IMAGE_SIZE": "512x512"})
    assert r.returncode != 0
    assert "--worst-size 512x512 found no image: the tensors of the DataLoader (2x9, 2x4) have no height and width" in r.stderr
    without_training = text.replace("    net(", "    0 and net(").replace("    optimizer.step()", "    net.weight.sum().item()")
    r = run(without_training, stop="until-exit", env={"PLIMSOLL_IMAGE_SIZE": "512x512"})
    assert r.returncode == 0 and r.process.one("worst")["how"] == "nothing" and "worst-size" in r.process.notes


def test_a_size_beyond_the_host_is_refused(run):
    r = run(LOADER.format(item="torch.rand(3, h, 48)", collate="lambda rows: rows", workers=0), env={"PLIMSOLL_IMAGE_SIZE": "65000x65000"})
    assert r.returncode != 0 and "--worst-size 65000x65000 makes a batch of 94.4 GiB in host memory" in r.stderr

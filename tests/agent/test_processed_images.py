"""`--worst-size` of a program whose images go through an image processor of transformers."""

from importlib.util import find_spec

import pytest

# Not imported: each process of the suite would wait for it.
pytestmark = pytest.mark.skipif(not find_spec("transformers"), reason="could not import 'transformers'")

PROGRAM = """
import numpy, torch
from PIL import Image
from torch.utils.data import DataLoader
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.clip.image_processing_clip import CLIPImageProcessor

processor = {processor}

def file(width, height):
    Image.new("RGB", (width, height)).save("picture.png")
    return "picture.png"

class Pictures:
    def __len__(self): return 4
    def __getitem__(self, i):
        seen = processor{method}({image}, return_tensors="pt")
        return dict(pixels=seen["pixel_values"], grid=seen.get("image_grid_thw", torch.zeros(1, 3)))

def collate(rows):
    return {{key: torch.cat([it[key] for it in rows]) for key in rows[0]}}

net = torch.nn.Linear(4, 4, device="cuda")
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for batch in DataLoader(Pictures(), batch_size=2, collate_fn=collate, num_workers={workers}):
    print(list(batch["pixels"].shape), batch["grid"].tolist()[0])
    net(torch.zeros(1, 4, device="cuda")).sum().backward()
    optimizer.step()
    break
"""
QWEN = "Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=1000 * 1000)"


@pytest.mark.matrix(2)
@pytest.mark.parametrize(
    "processor, method, image, workers, seen, said",
    [
        (QWEN, "", 'Image.new("RGB", (112, 56))', 0, "[512, 1176] [1, 16, 16]", "Qwen2VLImageProcessor each smaller image as 224x224; the first one was 56x112"),
        (QWEN, "", '[Image.new("RGB", (112, 56))]', 2, "[512, 1176] [1, 16, 16]", "pixel_values 256x1176"),
        (QWEN, ".preprocess", "numpy.zeros((56, 112, 3), numpy.uint8)", 0, "[512, 1176] [1, 16, 16]", "56x112"),
        (QWEN, "", "torch.zeros(3, 56, 112)", 0, "[512, 1176] [1, 16, 16]", "56x112"),
        # One that is larger stays; one whose processor has a size of its own stays at that.
        (QWEN, "", 'Image.new("RGB", (448, 448))', 0, "[2048, 1176] [1, 32, 32]", "224x224: Qwen2VLImageProcessor got no smaller image; the first one is 448x448"),
        (QWEN, "", 'Image.new("RGB", (448, 448) if i == 0 else (112, 56))', 0, "[1280, 1176] [1, 32, 32]", "each smaller image as 224x224; the first one was 56x112"),
        # A file is as large as it is.
        (QWEN, "", "file(448, 448)", 0, "[2048, 1176] [1, 32, 32]", "no smaller image; the first one is 448x448"),
        (QWEN, "", "file(112, 56)", 0, "[512, 1176] [1, 16, 16]", "the first one was 56x112"),
        ("CLIPImageProcessor()", "", 'Image.new("RGB", (112, 56))', 0, "[2, 3, 224, 224] [0.0, 0.0, 0.0]", "pixel_values 1x3x224x224"),
    ],
)
def test_images_have_the_size_before_they_are_processed(run, processor, method, image, workers, seen, said):
    program = PROGRAM.format(processor=processor, method=method, image=image, workers=workers)
    r = run(program, stop="until-exit", env={"PLIMSOLL_IMAGE_SIZE": "224x224"})
    assert r.returncode == 0, r.stderr
    assert r.stdout.strip() == seen
    (process,) = [it for it in r.processes if it.all("worst")]
    assert said in process.one("worst")["text"]
    assert process.one("worst")["how"] == "processor"

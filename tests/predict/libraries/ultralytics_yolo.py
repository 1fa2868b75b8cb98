"""ultralytics' trainer on pictures that are made here, with its validation."""

from pathlib import Path

import numpy
from PIL import Image
from ultralytics import YOLO

root = Path("pictures").absolute()
random = numpy.random.default_rng(0)
for part, count in (("train", 16), ("val", 8)):
    for kind in ("images", "labels"):
        (root / kind / part).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.fromarray(random.integers(0, 255, (160, 160, 3), dtype=numpy.uint8)).save(root / "images" / part / f"{i}.jpg")
        (root / "labels" / part / f"{i}.txt").write_text("0 0.5 0.5 0.3 0.3\n1 0.3 0.6 0.2 0.2\n")
(root / "data.yaml").write_text(f"path: {root}\ntrain: images/train\nval: images/val\nnames: [a, b]\n")
YOLO("yolov8n.yaml").train(data=str(root / "data.yaml"), epochs=2, imgsz=160, batch=8, workers=0, device=0, plots=False, pretrained=False)

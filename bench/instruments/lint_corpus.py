"""Gets the repositories of ../results/lint.md at their commits, Python files only.

    python bench/instruments/lint_corpus.py FOLDER
"""

import subprocess
import sys
from pathlib import Path

COMMITS = {
    "pytorch/examples": "77f55b912142e11fcfdf5b530231fb9c52f181e8",
    "karpathy/nanoGPT": "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    "ultralytics/yolov5": "5081342f04fb287fc2e5f2b5a4e06752b7937b1c",
    "huggingface/pytorch-image-models": "aa4b5850c1543fa488abf260f18390eda46cf85d",
    "huggingface/accelerate": "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83",
    "facebookresearch/fairseq": "3d262bb25690e4eb2e7d3c1309b1e9c406ca4b99",
    "pytorch/torchtune": "bd2a0fc7c31430972728494fa01aaeeb0ebf1ba1",
    "facebookresearch/detectron2": "02b5c4e295e990042a714712c21dc79b731e8833",
    "Lightning-AI/litgpt": "26857050fe3ff627cd714fe92f5838f51a3d5efa",
    "vwxyzjn/cleanrl": "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb",
    "CompVis/stable-diffusion": "21f890f9da3cfbeaba8e2ac3c425ee9e998d5229",
    "NVlabs/stylegan3": "c233a919a6faee6e36a316ddd4eddababad1adf9",
    "microsoft/Swin-Transformer": "f82860bfb5225915aca09c3227159ee9e1df874d",
    "facebookresearch/dino": "7c446df5b9f45747937fb0d72314eb9f7b66930a",
    "facebookresearch/mae": "efb2a8062c206524e35e47d04501ed4f544c0ae8",
}


def main():
    if sys.argv[1:] in ([], ["--help"]):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    for name, commit in COMMITS.items():
        home = folder / name.replace("/", "-")
        home.mkdir(parents=True, exist_ok=True)

        def git(*words):
            subprocess.run(["git", *words], cwd=home, check=True)

        git("init", "--quiet")
        git("sparse-checkout", "set", "--no-cone", "*.py")
        git("fetch", "--quiet", "--depth", "1", "--filter=blob:none", f"https://github.com/{name}", commit)
        git("checkout", "--quiet", "FETCH_HEAD")


if __name__ == "__main__":
    main()

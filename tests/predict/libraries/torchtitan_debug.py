"""torchtitan's trainer with the debug model of its Llama 3: FSDP2, selective checkpointing, a loss in parts, a step that is captured as a graph. Its assets, which the package lacks, are made."""

import json
import os
import sys
from pathlib import Path

import triton
from tokenizers import Tokenizer, models, pre_tokenizers

# A kernel of torchao 0.18 is tuned by an argument that it does not have, which the Triton of PyTorch 2.15 refuses, on a GPU, too.
tuned = triton.autotune
triton.autotune = lambda configs, key, **more: lambda kernel: tuned(configs, [it for it in key if it in kernel.arg_names], **more)(kernel)

words = ["<unk>", "<|begin|>", "<|end|>", *map("word{}".format, range(500))]
tokenizer = Tokenizer(models.WordLevel({it: i for i, it in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
assets = Path("tests/assets/tokenizer")
assets.mkdir(parents=True, exist_ok=True)
tokenizer.save(str(assets / "tokenizer.json"))
(assets / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|begin|>", "eos_token": "<|end|>"}))
texts = Path("tests/assets/c4_test")
texts.mkdir(exist_ok=True)
with open(texts / "data.json", "w") as file:
    for i in range(200):
        file.write(json.dumps({"text": " ".join(words[3 + (i * 7 + j) % 500] for j in range(400))}) + "\n")

os.environ.setdefault("LOCAL_RANK", "0")
sys.argv[1:] = ["--module", "llama3", "--config", "llama3_debugmodel", "--training.steps", "4", "--training.seq-len", "512", "--training.local-batch-size", "4"]
from torchtitan.train import main

main()

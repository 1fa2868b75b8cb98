"""What a plan does, said in settings of the script's own framework: the patched script takes what was said."""

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
from harness import PYTHON

TRAINER = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        ids = torch.zeros(256, dtype=torch.long)
        return {"input_ids": ids, "labels": ids}

ROWS = 16
args = TrainingArguments(
    "out",
    per_device_train_batch_size=ROWS,
    max_steps=4,
    report_to="none",
    save_strategy="no",
)
Trainer(model=GPT2LMHeadModel(GPT2Config(n_layer=2)), args=args, train_dataset=Rows()).train()
"""

LIGHTNING = """
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(40)])

    def training_step(self, batch, _):
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch, _):
        self.log("loss", self.net(batch[0]).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)

def rows(n):
    return TensorDataset(torch.zeros(n, 512))

trainer = L.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Net(), DataLoader(rows(16384), 4096), DataLoader(rows(64), 64))
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(40)])
loader = DataLoader(TensorDataset(torch.zeros(16384, 512)), batch_size=4096)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-3), loader)
for (x,) in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
"""


def needs(plimsoll, *words):
    """What the allocator reserves for a script as it is."""
    ran = plimsoll.run("predict", "--gpu", "t4", "--json", "it.json", "-q", "--", PYTHON, *words)
    assert ran.code == 0, ran
    return json.loads((plimsoll.folder / "it.json").read_text())["peak_reserved_bytes"]


def fitted(plimsoll, limit, *words):
    """The recipes of a script, in parts of its batch."""
    options = ["--limit-reserved", f"{limit}B", "--allow", "micro-batches", "--json", "it.json", "-q"]
    ran = plimsoll.run("fit", "--gpu", "t4", *options, "--", PYTHON, *words)
    assert ran.code == 0, ran
    return json.loads((plimsoll.folder / "it.json").read_text())["recipes"]


@pytest.mark.soak
@pytest.mark.parametrize(
    "script, framework, said",
    [
        (TRAINER, "transformers", ["per_device_train_batch_size=ROWS // 4, gradient_accumulation_steps=4"]),
        pytest.param(
            LIGHTNING, "lightning", ["DataLoader(batch_size=2048)", "Trainer(accumulate_grad_batches=2)"], marks=pytest.mark.soak
        ),
        pytest.param(
            ACCELERATE, "accelerate", ["DataLoader(batch_size=2048)", "Accelerator(gradient_accumulation_steps=2)"], marks=pytest.mark.soak
        ),
    ],
)
def test_the_patched_script_takes_what_the_switches_were_said_to_take(plimsoll, script, framework, said):
    pytest.importorskip(framework)
    plimsoll.script(script)
    before = needs(plimsoll, "train.py")
    limit = int(before * 0.75)
    (it,) = fitted(plimsoll, limit, "train.py")
    assert it["framework"] == framework
    assert all(any(words in line for line in it["lines"]) for words in said), it
    assert (plimsoll.folder / "train.py").read_text() == script
    patch = ["patch", "-p0"]
    subprocess.run(patch, input=it["diff"], text=True, cwd=plimsoll.folder, check=True, capture_output=True)
    assert needs(plimsoll, "train.py") <= it["needs_bytes"] <= limit


IN_CHUNKS = """
import sys, torch, torch.nn.functional as F, torch.utils.checkpoint
page = open(sys.argv[1]).read()
exec(page[page.index("```python") + 9 : page.rindex("```")])
torch.manual_seed(0)
for shape, given in (((50, 7), {}), ((5, 7, 9), {"ignore_index": 0, "label_smoothing": 0.1}), ((2, 7, 3, 4), {"ignore_index": 2})):
    logits, targets = torch.randn(shape), torch.randint(0, 7, shape[:1] + shape[2:])
    asked = [logits.clone().requires_grad_() for _ in range(2)]
    losses = F.cross_entropy(asked[0], targets, **given), chunked_cross_entropy(asked[1], targets, rows=8, **given)
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(asked[1].grad, asked[0].grad)
print("the same")
"""


@pytest.mark.soak
def test_the_loss_in_chunks_by_hand_is_the_loss():
    page = Path(__file__).parents[2] / "crates/remedies/src/pages/chunked-loss.md"
    ran = subprocess.run([PYTHON, "-c", IN_CHUNKS, page], capture_output=True, text=True)
    assert ran.stdout == "the same\n", ran.stderr


@pytest.mark.soak
def test_settings_from_the_command_line_are_words_to_add_to_it(plimsoll):
    pytest.importorskip("transformers")
    at = TRAINER.index("ROWS = 16")
    parsed = """
from transformers import HfArgumentParser
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
"""
    plimsoll.script(TRAINER[:at] + parsed + TRAINER[TRAINER.index("Trainer(model") :])
    words = ["train.py", "--output_dir", "out", "--per_device_train_batch_size", "16", "--max_steps", "4"]
    limit = int(needs(plimsoll, *words) * 0.75)
    (it,) = fitted(plimsoll, limit, *words)
    assert it["arguments"] == ["--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "4"]
    assert (it["lines"], it["diff"]) == ([], "")
    assert needs(plimsoll, *words, *it["arguments"]) <= it["needs_bytes"] <= limit


@pytest.mark.soak
def test_words_are_no_recipe_where_the_parser_reads_a_list_of_the_scripts_own(plimsoll):
    pytest.importorskip("transformers")
    at = TRAINER.index("ROWS = 16")
    parsed = """
import sys
from transformers import HfArgumentParser
words = sys.argv[1:] or ["--output_dir", "out", "--per_device_train_batch_size", "16", "--max_steps", "4"]
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
"""
    plimsoll.script(TRAINER[:at] + parsed + TRAINER[TRAINER.index("Trainer(model") :])
    limit = int(needs(plimsoll, "train.py") * 0.75)
    options = ["--limit-reserved", f"{limit}B", "--allow", "micro-batches", "--json", "it.json"]
    ran = plimsoll.run("fit", "--gpu", "t4", *options, "--", PYTHON, "train.py")
    assert ran.code == 0, ran
    assert json.loads((plimsoll.folder / "it.json").read_text())["recipes"] == []
    assert not any("did not do what" in it for it in ran.sentences), "nor is one tried"


@pytest.mark.soak
def test_what_needs_a_library_that_is_not_there_is_not_run_and_the_report_says_so(plimsoll):
    pytest.importorskip("transformers")
    if importlib.util.find_spec("bitsandbytes") is not None:
        pytest.skip("bitsandbytes is there")
    plimsoll.script(TRAINER)
    limit = int(needs(plimsoll, "train.py") * 0.75)
    options = ["--limit-reserved", f"{limit}B", "--allow", "optimizer-8bit", "--json", "it.json"]
    ran = plimsoll.run("fit", "--gpu", "t4", *options, "--", PYTHON, "train.py")
    said = "paged AdamW in 8 bits, AdamW in 8 bits: not tried, because bitsandbytes is not installed here (pip install bitsandbytes, then run fit again)"
    assert ran.code == 1 and said in ran.stdout, ran
    assert not any("paged_adamw" in it for it in ran.sentences), "it is not run"
    found = json.loads((plimsoll.folder / "it.json").read_text())
    assert found["recipes_not_tried"] == [{"settings": ["paged AdamW in 8 bits", "AdamW in 8 bits"], "missing": "bitsandbytes", "failure": None}]


ZERO = """
import os
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
import deepspeed, torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4)))
deepspeed.init_distributed("nccl")
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
for _ in range(4):
    x = torch.randn(8, 1024, device=engine.device, dtype=torch.bfloat16)
    engine.backward(engine(x).float().square().mean())
    engine.step()
"""
CONFIG = """{
    "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}},
    "bf16": {"enabled": true},
    "zero_optimization": {
        "stage": 2,
        "reduce_bucket_size": 5e8
    }
}
"""


@pytest.mark.soak
@pytest.mark.parametrize("is_in_file", [True, False])
def test_a_configuration_of_deepspeed_with_smaller_buckets_is_run_and_said(plimsoll, is_in_file):
    pytest.importorskip("deepspeed")
    (plimsoll.folder / "zero.json").write_text(CONFIG)
    config = '"zero.json"' if is_in_file else CONFIG.replace("true", "True")
    plimsoll.script(ZERO.replace("CONFIG", config))
    limit = needs(plimsoll, "train.py") // 2
    options = ["--limit-reserved", f"{limit}B", "--allow", "bucket-view", "--json", "it.json", "-q"]
    ran = plimsoll.run("fit", "--gpu", "t4", *options, "--", PYTHON, "train.py")
    assert ran.code == 0, ran
    (it,) = json.loads((plimsoll.folder / "it.json").read_text())["recipes"]
    assert it["framework"] == "deepspeed" and any('"reduce_bucket_size": 50000000' in line for line in it["lines"]), it
    assert (plimsoll.folder / "zero.json").read_text() == CONFIG
    subprocess.run(["patch", "-p0"], input=it["diff"], text=True, cwd=plimsoll.folder, check=True, capture_output=True)
    assert needs(plimsoll, "train.py") <= it["needs_bytes"] <= limit


ADAPTERS = """
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=4)
MODEL = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=8, lora_dropout=0.1, target_modules="all-linear", task_type="CAUSAL_LM"))
"""


@pytest.mark.soak
def test_adapters_of_attention_only_are_run_and_said(plimsoll):
    pytest.importorskip("peft")
    plimsoll.script(ADAPTERS + TRAINER.replace("GPT2LMHeadModel(GPT2Config(n_layer=2))", "MODEL").replace("256,", "512,"))
    limit = int(needs(plimsoll, "train.py") * 0.9)
    options = ["--limit-reserved", f"{limit}B", "--allow", "lora", "--json", "it.json", "-q"]
    ran = plimsoll.run("fit", "--gpu", "t4", *options, "--", PYTHON, "train.py")
    assert ran.code == 0, ran
    recipes = json.loads((plimsoll.folder / "it.json").read_text())["recipes"]
    (it,) = (it for it in recipes if "target_modules" in it["diff"])
    assert it["lines"] == ['train.py:5: LoraConfig(target_modules=["k_proj", "o_proj", "q_proj", "v_proj"])'], it
    subprocess.run(["patch", "-p0"], input=it["diff"], text=True, cwd=plimsoll.folder, check=True, capture_output=True)
    assert needs(plimsoll, "train.py") <= it["needs_bytes"] <= limit

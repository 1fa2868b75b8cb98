"""HF Trainer: resumes from the newest checkpoint by an absolute path through a link, keeps two of its checkpoints, packs the last and empties its folder."""
import json
import os
import shutil
import tarfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

os.symlink(os.path.abspath("hf_out"), "runs-link")
place = os.path.join(os.getcwd(), "runs-link")
first = get_last_checkpoint(place)
assert first.endswith("checkpoint-10"), first
before = json.load(open(f"{first}/trainer_state.json"))
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=500, n_positions=64))
words = [torch.randint(0, 500, (32,)) for _ in range(200)]
data = [{"input_ids": it, "labels": it} for it in words]
arguments = TrainingArguments(
    place, per_device_train_batch_size=4, max_steps=18, save_steps=2, save_total_limit=2, logging_steps=2, report_to=[],
    disable_tqdm=True, dataloader_num_workers=2, save_only_model=False,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data)
trainer.train(resume_from_checkpoint=True)
assert trainer.state.global_step == 18

left = sorted(os.listdir("hf_out"))
assert left == ["checkpoint-15", "checkpoint-18"], left  # every five steps, as the checkpoint says
after = json.load(open("hf_out/checkpoint-18/trainer_state.json"))
assert after["log_history"][: len(before["log_history"])] == before["log_history"], "it did not go on where it was"
for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
    assert os.path.getsize(f"{place}/checkpoint-18/{name}"), name
with tarfile.open("last.tar.gz", "w:gz") as tar:
    tar.add(f"{place}/checkpoint-18", "model")
shutil.rmtree("hf_out")
assert os.path.islink("runs-link") and not os.path.exists("runs-link")
with tarfile.open("last.tar.gz") as tar:
    tar.extractall("unpacked")
os.makedirs("hf_out")
os.rename("unpacked/model", "runs-link/checkpoint-18")
os.rmdir("unpacked")
assert GPT2LMHeadModel.from_pretrained(get_last_checkpoint(place)).num_parameters() == model.num_parameters()
print("READ BACK OK")

#!/usr/bin/env python3
"""Where the seconds of a prediction go: what the script itself takes before its first step, its steps, and the rest.

    bench/accuracy/seconds.py [--only NAME ...] [--out PATH]

Every case is a script of kinds.py under `plimsoll predict`. Times are CPU seconds (user and system) of all processes, because a
machine with other work on it says little by the clock:
  before   the script's process until the first module is called: imports, models, the first batch
  steps    the same process from there to its end: training steps on the phantom, and what the agent does
  rest     everything else: the command itself, reading and replaying the recording, and a second run where one is made
The bar is that `steps` and `rest` take 2 s together.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CASES = """accelerate-vit-fp16 bert-padded-amp-bf16 bilstm-tagger-amp diffusion-unet-bf16 dpo-pairs-bf16 dqn-frames faster-rcnn-training
gpt2-generate-kv-cache graph-sage-sampled lightning-efficientnet-bf16 llama-lora-bf16 mamba-of-transformers moe-transformer
nanogpt-compiled-bf16 nerf-rays ppo-mlp seq2seq-gru simclr-two-views swin-mixup-scaler t5-bf16-adafactor trainer-t5-small unet-segmentation
vit-accumulation-fused wav2vec2-ctc-amp whisper-bf16""".split()
# Runs kinds.py with a word at the first call of a module, and one at the end.
MARKED = """
import atexit, json, os, resource, runpy, sys, torch
def cpu():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
me, marks = os.getpid(), {}
def first(module, inputs):
    if any(it.is_cuda for it in module.parameters()):
        marks.setdefault("before", cpu())
        hook.remove()
hook = torch.nn.modules.module.register_module_forward_pre_hook(first)
def end():
    if os.getpid() == me:
        with open(os.environ["MARKS"], "a") as file:
            file.write(json.dumps(marks | {"end": cpu()}) + "\\n")
atexit.register(end)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", default=os.path.join(ROOT, "target", "release", "plimsoll"))
    parser.add_argument("--python", default=os.environ.get("PLIMSOLL_PYTHON", sys.executable))
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--only", nargs="*", default=CASES, help="names of kinds.py")
    parser.add_argument("--out", help="write every number here, as JSON")
    return parser.parse_args()


def children():
    it = resource.getrusage(resource.RUSAGE_CHILDREN)
    return it.ru_utime + it.ru_stime


def measure(options, name, folder):
    marked, marks, report = (os.path.join(folder, it) for it in ("marked.py", "marks", "report"))
    with open(marked, "w") as file:
        file.write(MARKED)
    open(marks, "w").close()
    command = [options.plimsoll, "predict", "--gpu", options.gpu, "--quiet", "--until-exit", "--json", report, "--", options.python, marked]
    began = children()
    subprocess.run([*command, os.path.join(HERE, "kinds.py"), name, os.path.join(folder, "out")], env=os.environ | {"MARKS": marks}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    total = children() - began
    runs = [json.loads(it) for it in open(marks)]
    if not runs or "before" not in runs[0]:
        return None
    before, steps = runs[0]["before"], runs[0]["end"] - runs[0]["before"]
    return {"name": name, "before": before, "steps": steps, "rest": total - runs[0]["end"], "runs": len(runs)}


def main():
    options = arguments()
    rows = []
    print(f"{'script':36}{'before':>9}{'steps':>9}{'rest':>9}{'beyond':>9}  runs")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            row = measure(options, name, folder)
            if row is None:
                print(f"{name:36} did not run")
                continue
            rows.append(row)
            beyond = row["steps"] + row["rest"]
            print(f"{name:36}{row['before']:9.2f}{row['steps']:9.2f}{row['rest']:9.2f}{beyond:9.2f}  {row['runs']}", flush=True)
    beyond = sorted(it["steps"] + it["rest"] for it in rows)
    if beyond:
        print(f"beyond imports and construction: median {statistics.median(beyond):.2f} s, worst {beyond[-1]:.2f} s, within 2 s {sum(it <= 2 for it in beyond)} of {len(beyond)}")
    if options.out:
        with open(options.out, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()

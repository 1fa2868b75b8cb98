"""Draws a sample of xMem's Monte Carlo protocol (Middleware '25, `exp/config.py` of its repository) as cases for ../programs/workloads.py.

    python bench/instruments/montecarlo.py COUNT [--seed N] > cases.json

Twelve CNNs of torchvision at 86x86 with batch 200 to 700, eight language models at 128 tokens with
batch 5 to 55 and the padding of real batches (the longest text of a batch is what it is padded to),
a random optimizer and a random place of zero_grad; fp32, three steps.
"""
import argparse
import json
import random

CNNS = "vgg16 vgg19 resnet101 resnet152 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet1_0 convnext_tiny convnext_base regnet_x_400mf regnet_y_400mf".split()
LANGUAGE = "gpt-neo-125m opt-125m opt-350m cerebras-gpt-111m t5-small t5-base distilgpt2 gpt2".split()


def draw(pick, language):
    if language:
        case = {"model": pick.choice(LANGUAGE), "batch": pick.randint(5, 55), "optimizer": pick.choice(["sgd", "adam", "adamw", "adafactor"])}
        case["seqs"] = [pick.choice([128, 128, 128, pick.randint(60, 127)]) for _ in range(3)]
    else:
        case = {"model": "tv/" + pick.choice(CNNS), "batch": pick.randint(200, 700), "image": 86, "optimizer": pick.choice(["sgd", "adam", "rmsprop", "adagrad", "adamw"])}
    case["zero_grad"] = pick.choice(["start", "backward", "end"])
    case["steps"] = 3
    case["name"] = f"mc-{case['model'].removeprefix('tv/')}-{case['optimizer']}-b{case['batch']}-{case['zero_grad']}"
    return case


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=20261121)
    options = parser.parse_args()
    pick = random.Random(options.seed)
    # As in the original: a language model for every 1.5 CNNs.
    cases = [draw(pick, language=number % 5 in (1, 3)) for number in range(options.count)]
    print("[" + ",\n ".join(json.dumps(it) for it in cases) + "]")


if __name__ == "__main__":
    main()

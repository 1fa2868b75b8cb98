"""What the programs of this folder share: a small decoder, saved as a folder; texts; and one line of JSON after each phase, with the peaks of that phase."""
import atexit
import json
import os
import shutil
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 32000
TIMES = float(os.environ.get("ADAPTERS_TIMES", "1"))  # So many times the rows of each batch.
HELD = int(os.environ.get("ADAPTERS_HELD", "0"))  # PyTorch gets so many bytes of the card.
if HELD:
    torch.cuda.set_per_process_memory_fraction(HELD / torch.cuda.get_device_properties(0).total_memory)


def scaled(number):
    return max(1, round(number * TIMES))


def dataset(make, rows, train, batch):
    """So many rows, split into those to train and to evaluate with. Of larger batches there are as many rows as four steps and an evaluation need."""
    if TIMES == 1:
        return [make() for _ in range(train)], [make() for _ in range(rows - train)]
    return [make() for _ in range(5 * batch)], [make() for _ in range(2 * batch)]


def config(**more):
    shape = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, vocab_size=VOCABULARY)
    return LlamaConfig(**{**shape, "use_cache": False, **more})


def saved(model=None, dtype=torch.bfloat16, shard="5GB"):
    """A folder with the weights of `model`, as one would have downloaded it."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, True)
    (model or LlamaForCausalLM(config())).to(dtype).save_pretrained(folder, max_shard_size=shard)
    return folder


def texts(rows=4, length=512):
    ids = torch.randint(0, VOCABULARY, (scaled(rows), length), device="cuda")
    return {"input_ids": ids, "labels": ids.clone()}


def phase(name):
    torch.cuda.synchronize()
    print(json.dumps({"phase": name, "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}), flush=True)
    torch.cuda.reset_peak_memory_stats()


def train(model, optimizer, steps=4, rows=4, length=512):
    model.train()
    for step in range(steps):
        loss = model(**texts(rows, length)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step in (0, steps - 1):
            phase("step %d" % (step + 1))


def evaluate(model, rows=4, length=512):
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            model(**texts(rows, length))
    phase("evaluation")


def trainable(model):
    return [it for it in model.parameters() if it.requires_grad]


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{"w%d" % it: it for it in range(3, VOCABULARY)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def sentence(random, least, most):
    return " ".join("w%d" % random.randint(3, VOCABULARY - 1) for _ in range(random.randint(least, most)))


def report_phases():
    """A callback of transformers' Trainer that prints the same lines."""
    from transformers import TrainerCallback

    class Phases(TrainerCallback):
        def on_train_begin(self, *_, **__):
            phase("loading")

        def on_step_end(self, args, state, control, **__):
            if state.global_step in (1, args.max_steps):
                phase("step %d" % state.global_step)

        def on_evaluate(self, *_, **__):
            phase("evaluation")

        def on_save(self, *_, **__):
            phase("saving")

    return Phases()

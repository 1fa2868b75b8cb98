"""Programs that write text: no word that nobody computed ends one, so they go on to their limit."""

import pytest

# A small model of each kind, whose forward passes are counted.
MODELS = """
import json, torch, transformers, warnings
warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

def counted(model):
    model = model.to("cuda").eval()
    model.turns = 0
    def count(*_):
        model.turns += 1
        assert model.turns < 200, "it does not end"
    model.register_forward_pre_hook(count)
    return model

def gpt(words=5000):
    return counted(GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=words, bos_token_id=words - 1, eos_token_id=words - 1)))

def t5():
    return counted(T5ForConditionalGeneration(T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=2, vocab_size=1000, decoder_start_token_id=0)))

def turns(model, **options):
    model.turns = 0
    out = model.generate(torch.randint(10, 900, (options.pop("batch", 2), 7)).cuda(), max_new_tokens=12, pad_token_id=0, **options)
    return [model.turns, out.shape[1]]
"""


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_a_search_with_beams_goes_on_to_its_limit(phantom, early_stopping):
    ran = phantom(
        MODELS
        + f"""
options = dict(num_beams=4, early_stopping={early_stopping!r})
print(json.dumps([turns(gpt(), **options), turns(t5(), **options), turns(gpt(), batch=1, do_sample=True, **options)]))
"""
    )
    assert ran.values == [[12, 19], [12, 13], [12, 19]]
    assert any("ends a text" in it for it in ran.approximated)
    assert ran.report["unknown_reads"]["count"] == 0

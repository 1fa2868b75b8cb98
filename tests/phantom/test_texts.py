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


@pytest.mark.soak
@pytest.mark.parametrize("early_stopping", [*(pytest.param(it, marks=pytest.mark.soak) for it in (True, False)), "never"])
def test_a_search_with_beams_goes_on_to_its_limit(phantom, early_stopping):
    ran = phantom(
        MODELS
        + f"""
options = dict(num_beams=4, early_stopping={early_stopping!r})
print(json.dumps([turns(gpt(), **options), turns(t5(), **options), turns(gpt(), batch=1, do_sample=True, **options)]))
"""
    )
    assert ran.values == [[12, 19], [12, 13], [12, 19]]
    assert any("end-of-text" in it for it in ran.approximated)
    assert ran.report["unknown_reads"]["count"] == 0


@pytest.mark.soak
def test_drafts_of_another_model_are_refused_and_it_ends(phantom):
    """As of models that have learned nothing: each turn keeps one word, and the text has its full length."""
    ran = phantom(
        MODELS
        + """
model, small = gpt(), gpt()
out = []
for sample in (False, True):
    for threshold in (0.4, 0.0):
        small.generation_config.assistant_confidence_threshold = threshold
        small.turns = 0
        out.append(turns(model, batch=1, do_sample=sample, assistant_model=small) + [small.turns >= 11])
    out.append(turns(model, batch=1, do_sample=sample, prompt_lookup_num_tokens=3))
print(json.dumps(out))
"""
    )
    refused = [[12, 19, True], [12, 19, True], [12, 19]]
    assert ran.values == 2 * refused


# One's own loops, each of which says how many turns it took of 30.
LOOPS = {
    "a search with beams": """
        scores, tokens = torch.zeros(3, BEAMS, device="cuda"), torch.zeros(3 * BEAMS, 1, dtype=torch.long, device="cuda")
        finished = [[] for _ in range(3)]
        for turn in range(30):
            turns += 1
            following = (scores.view(-1, 1) + logits(3 * BEAMS).log_softmax(-1)).view(3, -1)
            best, place = following.topk(2 * BEAMS)
            beam, word = place // WORDS, place % WORDS
            ended = word.eq(END) & best.ne(-torch.inf)
            for row, column in ended[:, :BEAMS].nonzero().tolist():
                finished[row].append(best[row, column].item())
            if all(len(it) >= BEAMS for it in finished):
                break
            active = ended.long() * 2 * BEAMS + torch.arange(2 * BEAMS, device="cuda")
            _, keep = active.topk(BEAMS, largest=False)
            scores, word, beam = (it.gather(1, keep) for it in (best, word, beam))
            rows = (beam + torch.arange(3, device="cuda")[:, None] * BEAMS).view(-1)
            tokens = torch.cat([tokens.index_select(0, rows), word.view(-1, 1)], 1)
        """,
    "a word at a time": """
        tokens = torch.zeros(1, 1, dtype=torch.long, device="cuda")
        while tokens.shape[1] <= 30:
            turns += 1
            word = logits(1).argmax(-1)
            tokens = torch.cat([tokens, word[:, None]], 1)
            if word.item() == END:
                break
        """,
    "a batch until all have ended": """
        tokens = torch.ones(4, 1, dtype=torch.long, device="cuda")
        while True:
            turns += 1
            word = torch.multinomial(logits(4).float().softmax(-1), 1)[:, 0]
            word[tokens[:, -1] == END] = END
            tokens = torch.cat([tokens, word[:, None]], -1)
            if (tokens[:, 1:][:, -1] == END).all() or tokens.shape[1] > 30:
                break
        """,
    "of the likeliest": """
        ended = torch.zeros(4, dtype=torch.bool, device="cuda")
        for turn in range(30):
            turns += 1
            chance, word = logits(4).float().softmax(-1).sort(dim=-1, descending=True)
            chance[chance.cumsum(-1) - chance > 0.9] = 0.0
            word = word.gather(-1, torch.multinomial(chance, 1))[:, 0]
            ended |= word == END
            if all(ended):
                break
        """,
    "of the first few": """
        kept, length = torch.ones(4, device="cuda", dtype=torch.long), 0
        while kept.max() != 0 and length < 30:
            turns += 1
            length += 1
            value, place = logits(4).topk(50)
            word = place.gather(1, torch.multinomial(value.float().softmax(-1), 1))[:, 0]
            word = word * kept + 7 * (1 - kept)
            kept = kept.mul((word != END).long())
        """,
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_of_ones_own_goes_on_to_its_limit(phantom, name):
    ran = phantom(
        """
        import json, torch
        out = []
        for WORDS, END, BEAMS, kind in ((50_257, 50_256, 4, torch.float32), (32_000, 2, 3, torch.bfloat16), (1000, 0, 5, torch.float16)):
            weight = torch.randn(64, WORDS, device="cuda", dtype=kind)
            def logits(rows):
                return torch.randn(rows, 64, device="cuda", dtype=kind) @ weight
            turns = 0
        LOOP
            out.append(turns)
        print(json.dumps(out))
        """.replace("        LOOP\n", "\n".join("    " + line for line in LOOPS[name].rstrip().splitlines()) + "\n")
    )
    assert ran.values == [30, 30, 30]

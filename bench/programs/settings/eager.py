import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from tail import timed, done
torch.manual_seed(0)
if sys.argv[1] == "gpt2":
    model = GPT2LMHeadModel(GPT2Config(attn_pdrop=0.1)); vocab = 50257
else:
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4)); vocab = 32000
model.set_attn_implementation("eager")
model = model.cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for step in range(8):
    with timed():
        tokens = torch.randint(vocab, (8, 1024), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
done()

"""A chat model on a small card: made in half precision."""
import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def load(device):
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=2048,
    )
    torch.set_default_dtype(torch.half)
    with torch.device(device):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float)
    return model.eval()


@torch.inference_mode()
def answer(model, length, tokens):
    ids = torch.randint(5, 32000, (1, length), device=model.device)
    return model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, pad_token_id=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=48)
    args = parser.parse_args()
    model = load(args.device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.2f} billion weights")
    for length in (60, 300, 120):
        text = answer(model, length, args.tokens)
        print("tokens:", text.shape[1])


if __name__ == "__main__":
    main()

"""A Llama of transformers under accelerate, as its documentation shows: FSDP2 with blocks that are run again, or DDP; what each rank took goes to
$OUT_LAYOUTS. Needs transformers and accelerate.

    accelerate launch --num_processes 2 hugging.py --kind fsdp --ac
"""


import torch
from ranks import options, run


class Texts(torch.utils.data.Dataset):
    def __init__(self, words, length):
        self.words, self.length = words, length

    def __len__(self):
        return 4096

    def __getitem__(self, i):
        ids = torch.randint(self.words, (self.length,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


def train(args, seen):
    from accelerate import Accelerator
    from accelerate.utils import FullyShardedDataParallelPlugin
    from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
        activation_checkpointing=args.ac,
    )
    accelerator = Accelerator(
        mixed_precision="bf16",
        gradient_accumulation_steps=args.micro,
        fsdp_plugin=plugin if args.kind == "fsdp" else None,
    )
    config = LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=args.layers, num_attention_heads=32, num_key_value_heads=8,
        vocab_size=64000, max_position_embeddings=4096, use_cache=False,
    )
    torch.manual_seed(1)
    model = LlamaForCausalLM(config)
    if args.ac and args.kind != "fsdp":
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(Texts(config.vocab_size, args.seq), batch_size=args.mbs, shuffle=True)
    schedule = get_linear_schedule_with_warmup(optimizer, 2, 100)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    step = 0
    for each in loader:
        with accelerator.accumulate(model):
            loss = model(**each).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            step += 1
            seen.look(f"step{step}")
        if step == args.steps:
            break


def main(words=None):
    parser = options("hugging", mbs=4, micro=2, seq=2048, layers=12, steps=4)
    parser.add_argument("--kind", choices=["fsdp", "ddp"], default="fsdp")
    parser.add_argument("--ac", action="store_true", help="blocks run again in the backward pass")
    run(parser.parse_args(words), train, backend=None)


if __name__ == "__main__":
    main()

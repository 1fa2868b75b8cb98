"""DeepSpeed's ZeRO of a dense model of `large.py`; what each rank took goes to $OUT_LAYOUTS. Needs deepspeed.

    deepspeed --num_gpus 4 zero.py --stage 3 --layers 12 --offload optimizer param
"""


import torch
from large import Model, Sizes, loss_of
from ranks import options, run


def train(args, seen):
    import deepspeed

    offload = {f"offload_{it}": {"device": "cpu", "pin_memory": True} for it in args.offload if it != "none"}
    config = {
        "train_micro_batch_size_per_gpu": args.mbs,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": args.stage, **offload},
    }
    sizes = Sizes(2048, args.layers, 16, 8, 128, 7168, 32000)
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=args.stage == 3):
        model = Model(sizes, args.seq, range(sizes.layers))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for step in range(args.steps):
        t = torch.randint(sizes.words, (args.mbs, args.seq + 1), device=engine.device)
        engine.backward(loss_of(engine(t[:, :-1]), t[:, 1:]))
        engine.step()
        seen.look(f"step{step + 1}")


def main(words=None):
    parser = options("zero", stage=3, mbs=2, seq=2048, layers=12, steps=4)
    parser.add_argument("--offload", choices=["none", "optimizer", "param"], nargs="*", default=[])
    parser.add_argument("--local_rank", help="of the launcher; it is in the environment, too")
    run(parser.parse_args(words), train)


if __name__ == "__main__":
    main()

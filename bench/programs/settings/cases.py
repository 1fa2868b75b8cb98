"""The scripts and the plans that are compared."""

A = lambda text: {"id": "allocator", "settings": text}
CASES = [
    ("frag", ["frag.py"], [[], [A("expandable_segments:True")], [A("roundup_power2_divisions:2")], [{"id": "empty-cache", "after": "step"}], [{"id": "empty-cache", "after": "backward"}]]),
    ("resnet50", ["resnet.py", "resnet50"], [[], [{"id": "channels-last"}], [{"id": "inplace-activations"}], [{"id": "channels-last"}, {"id": "inplace-activations"}]]),
    ("resnet50-amp", ["resnet.py", "resnet50", "amp"], [[], [{"id": "channels-last"}]]),
    ("vgg16", ["resnet.py", "vgg16"], [[], [{"id": "channels-last"}, {"id": "inplace-activations"}]]),
    ("segment", ["segment.py"], [[], [{"id": "chunked-loss"}], [{"id": "chunked-loss"}, {"id": "channels-last"}]]),
    ("gpt2", ["eager.py", "gpt2"], [[], [{"id": "attention"}], [{"id": "attention"}, {"id": "chunked-loss"}, A("expandable_segments:True")]]),
    ("llama", ["eager.py", "llama"], [[], [{"id": "attention"}]]),
]

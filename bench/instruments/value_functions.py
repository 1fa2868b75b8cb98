"""Small programs whose result is read back, on the device and on the CPU, which is exact: names those that differ.

    plimsoll predict --gpu h200 --until-exit -- python bench/instruments/value_functions.py [NAME ...]
"""
import sys

import torch
import torch.nn.functional as F

if "--help" in sys.argv:
    sys.exit(__doc__)
torch.manual_seed(3)
B, T = 6, 48
lengths = torch.tensor([48, 3, 17, 30, 22, 9])
ids = torch.randint(0, 9, (B, T))
mask = torch.arange(T)[None] < lengths[:, None]
pic = torch.rand(2, 1, 20, 24)
heat = (pic * 50).floor()
noise = torch.randn(B, T)
def tri(n, d): return torch.triu(torch.ones(n, n, device=d), 1)
P = {
 # 1 pooling
 "max_pool1d": lambda d, m, i, l, h, x: F.max_pool1d(m[:, None].float(), 4, 4, ceil_mode=True)[:, 0].bool(),
 "max_pool1d overlapping": lambda d, m, i, l, h, x: F.max_pool1d(m[:, None].float(), 5, 2, padding=2)[:, 0].bool(),
 "max_pool2d": lambda d, m, i, l, h, x: F.max_pool2d(h, 2) > 20,
 "peaks": lambda d, m, i, l, h, x: (F.max_pool2d(h, 3, 1, 1) == h),
 "erosion": lambda d, m, i, l, h, x: -F.max_pool2d(-h, 3, 1, 1) > 5,
 "max_pool2d indices": lambda d, m, i, l, h, x: F.max_pool2d(h, 2, return_indices=True)[1],
 "max_pool3d": lambda d, m, i, l, h, x: F.max_pool3d(h[None], (1, 2, 2)) > 20,
 "avg_pool1d": lambda d, m, i, l, h, x: F.avg_pool1d(m[:, None].float(), 4) > 0.5,
 "avg_pool2d": lambda d, m, i, l, h, x: F.avg_pool2d(h, 2) > 20,
 "adaptive_max_pool1d": lambda d, m, i, l, h, x: F.adaptive_max_pool1d(m[:, None].float(), 12) > 0,
 "adaptive_avg_pool2d": lambda d, m, i, l, h, x: F.adaptive_avg_pool2d(h, (5, 6)) > 20,
 # 2 triangles
 "triu any": lambda d, m, i, l, h, x: tri(T, d).any(),
 "triu bool": lambda d, m, i, l, h, x: tri(T, d).bool(),
 "tril ones bool": lambda d, m, i, l, h, x: torch.tril(torch.ones(T, T, dtype=torch.bool, device=d)),
 "triu of -inf": lambda d, m, i, l, h, x: torch.triu(torch.full((T, T), float("-inf"), device=d), 1) < 0,
 "tril batch": lambda d, m, i, l, h, x: torch.tril(m[:, None, :] & m[:, :, None]),
 "triu in place": lambda d, m, i, l, h, x: torch.ones(T, T, device=d).triu_(1) == 1,
 "triu large": lambda d, m, i, l, h, x: torch.triu(torch.ones(2100, 2100, device=d), 1).any(),
 "triu large bool": lambda d, m, i, l, h, x: torch.triu(torch.ones(2100, 2100, device=d, dtype=torch.bool), 1)[7],
 "tril_indices": lambda d, m, i, l, h, x: torch.tril_indices(9, 9, device=d),
 "triu_indices": lambda d, m, i, l, h, x: torch.triu_indices(9, 9, 1, device=d),
 "diagonal": lambda d, m, i, l, h, x: torch.ones(9, 9, device=d).fill_diagonal_(0),
 "eye": lambda d, m, i, l, h, x: torch.eye(9, device=d),
 "eye bool": lambda d, m, i, l, h, x: ~torch.eye(9, dtype=torch.bool, device=d),
 "diag_embed": lambda d, m, i, l, h, x: torch.diag_embed(l),
 "block_diag": lambda d, m, i, l, h, x: torch.block_diag(*[torch.ones(n, n, device=d) for n in (2, 3)]),
 "kron": lambda d, m, i, l, h, x: torch.kron(torch.eye(3, device=d), torch.ones(2, 2, device=d)),
 # 3 sums from the start
 "cumsum mask": lambda d, m, i, l, h, x: m.cumsum(-1),
 "cumsum mask 0": lambda d, m, i, l, h, x: m.cumsum(0),
 "cumsum long": lambda d, m, i, l, h, x: i.cumsum(1),
 "cumsum float": lambda d, m, i, l, h, x: m.float().cumsum(1),
 "cumsum int": lambda d, m, i, l, h, x: torch.cumsum(m.int(), 1).type_as(m.int()) * m,
 "cumsum one": lambda d, m, i, l, h, x: l.cumsum(0),
 "cumsum one float": lambda d, m, i, l, h, x: l.float().cumsum(0),
 "cumsum bool one": lambda d, m, i, l, h, x: m[2].cumsum(0),
 "cumsum int32 to": lambda d, m, i, l, h, x: l.cumsum(0, dtype=torch.int32),
 "cumprod": lambda d, m, i, l, h, x: (i != 3).long().cumprod(1),
 "cumprod one": lambda d, m, i, l, h, x: (i[0] != 3).long().cumprod(0),
 "cumprod float": lambda d, m, i, l, h, x: torch.cumprod(1 - torch.linspace(0.001, 0.02, 50, device=d), 0) > 0.7,
 "cummax": lambda d, m, i, l, h, x: i.cummax(1)[0],
 "cummin": lambda d, m, i, l, h, x: i.cummin(1)[1],
 "flip cumsum": lambda d, m, i, l, h, x: m.flip(1).cumsum(1).flip(1),
 "diff": lambda d, m, i, l, h, x: torch.diff(l),
 "logcumsumexp": lambda d, m, i, l, h, x: torch.logcumsumexp(l.float(), 0) > 30,
 # 4 halves
 "bf16 mask": lambda d, m, i, l, h, x: (1.0 - m.to(torch.bfloat16)) * torch.finfo(torch.bfloat16).min < 0,
 "fp16 mask": lambda d, m, i, l, h, x: (1.0 - m.to(torch.float16)) * torch.finfo(torch.float16).min < 0,
 "bf16 where": lambda d, m, i, l, h, x: torch.where(m, torch.tensor(0.0, device=d, dtype=torch.bfloat16), torch.finfo(torch.bfloat16).min) == 0,
 "bf16 masked_fill": lambda d, m, i, l, h, x: torch.zeros(B, T, dtype=torch.bfloat16, device=d).masked_fill(~m, float("-inf")) < 0,
 "bf16 sum": lambda d, m, i, l, h, x: m.bfloat16().sum(-1).long(),
 "fp16 max": lambda d, m, i, l, h, x: l.half().max().item(),
 "bf16 round trip": lambda d, m, i, l, h, x: x.bfloat16().float() > 0.1,
 "bf16 any": lambda d, m, i, l, h, x: m.bfloat16().any(1),
 "bf16 topk": lambda d, m, i, l, h, x: l.bfloat16().topk(2)[1],
 "bf16 nonzero": lambda d, m, i, l, h, x: m.bfloat16().nonzero(),
 # 5 shapes
 "pad": lambda d, m, i, l, h, x: F.pad(m, (2, 3), value=True),
 "pad long": lambda d, m, i, l, h, x: F.pad(i, (2, 3), value=7),
 "pad reflect": lambda d, m, i, l, h, x: F.pad(h, (1, 1, 1, 1), mode="reflect") > 9,
 "pad replicate": lambda d, m, i, l, h, x: F.pad(h, (1, 1, 1, 1), mode="replicate") > 9,
 "roll": lambda d, m, i, l, h, x: m.roll(1, 1),
 "roll one": lambda d, m, i, l, h, x: l.roll(1),
 "cat": lambda d, m, i, l, h, x: torch.cat([m, ~m], 1),
 "stack": lambda d, m, i, l, h, x: torch.stack([m, ~m], 1),
 "repeat": lambda d, m, i, l, h, x: m.repeat(2, 3),
 "unfold any": lambda d, m, i, l, h, x: m.unfold(1, 4, 4).any(-1),
 "F.unfold": lambda d, m, i, l, h, x: F.unfold(h, 2) > 20,
 "interpolate nearest": lambda d, m, i, l, h, x: F.interpolate(h, size=(10, 12)) > 20,
 "interpolate nearest 1d": lambda d, m, i, l, h, x: F.interpolate(m[:, None].float(), size=13)[:, 0].bool(),
 "interpolate twice": lambda d, m, i, l, h, x: F.interpolate(h, scale_factor=2) > 20,
 "interpolate bilinear": lambda d, m, i, l, h, x: F.interpolate(h, size=(10, 12), mode="bilinear") > 20,
 "interpolate bicubic": lambda d, m, i, l, h, x: F.interpolate(h, size=(10, 12), mode="bicubic") > 20,
 "grid_sample": lambda d, m, i, l, h, x: F.grid_sample(h, torch.zeros(2, 3, 3, 2, device=d), align_corners=False) > 9,
 "pixel_unshuffle": lambda d, m, i, l, h, x: F.pixel_unshuffle(h, 2).amax(1) > 20,
 "meshgrid": lambda d, m, i, l, h, x: torch.stack(torch.meshgrid(torch.arange(4, device=d), torch.arange(3, device=d), indexing="ij"), -1).sum(-1),
 "cartesian": lambda d, m, i, l, h, x: torch.cartesian_prod(l, l),
 "combinations": lambda d, m, i, l, h, x: torch.combinations(l),
 "pad_sequence": lambda d, m, i, l, h, x: torch.nn.utils.rnn.pad_sequence([l[:2], l, l[:3]], True) > 0,
 "channels last": lambda d, m, i, l, h, x: h.contiguous(memory_format=torch.channels_last) > 20,
 # 6 counts
 "one_hot": lambda d, m, i, l, h, x: F.one_hot(i, 9).sum((0, 1)),
 "one_hot unknown": lambda d, m, i, l, h, x: F.one_hot(i).sum((0, 1)),
 "bincount": lambda d, m, i, l, h, x: torch.bincount(i.flatten(), minlength=12),
 "bincount weights": lambda d, m, i, l, h, x: torch.bincount(i.flatten(), weights=m.flatten().float()) > 9,
 "histc": lambda d, m, i, l, h, x: torch.histc(h, 10, 0, 50) > 90,
 "unique": lambda d, m, i, l, h, x: torch.unique(i),
 "unique counts": lambda d, m, i, l, h, x: torch.unique(i, return_counts=True)[1],
 "unique inverse": lambda d, m, i, l, h, x: torch.unique(i, return_inverse=True)[1],
 "unique dim": lambda d, m, i, l, h, x: torch.unique(i[:, :1], dim=0),
 "unique consecutive": lambda d, m, i, l, h, x: torch.unique_consecutive(m[2]),
 "unique floats": lambda d, m, i, l, h, x: torch.unique(h),
 "unique bool": lambda d, m, i, l, h, x: torch.unique(m),
 "isin": lambda d, m, i, l, h, x: torch.isin(i, torch.tensor([2, 5], device=d)),
 "bucketize": lambda d, m, i, l, h, x: torch.bucketize(h, torch.tensor([5., 20., 30.], device=d)),
 "searchsorted rows": lambda d, m, i, l, h, x: torch.searchsorted(i.cumsum(1), i[:, :3].contiguous() * 9),
 "argmax of flags": lambda d, m, i, l, h, x: (i == 4).int().argmax(-1),
 "max of flags": lambda d, m, i, l, h, x: (i == 4).max(1)[1],
 "argmax long": lambda d, m, i, l, h, x: i.argmax(1),
 "argmax float": lambda d, m, i, l, h, x: x.argmax(1),
 "argmin": lambda d, m, i, l, h, x: x.argmin(0),
 "amax": lambda d, m, i, l, h, x: i.amax(1),
 "aminmax": lambda d, m, i, l, h, x: torch.stack(torch.aminmax(x)) > 2,
 "aminmax dim": lambda d, m, i, l, h, x: torch.stack(torch.aminmax(i, dim=1)),
 "count_nonzero": lambda d, m, i, l, h, x: torch.count_nonzero(i, 1),
 "count_nonzero all": lambda d, m, i, l, h, x: torch.count_nonzero(i),
 "sort bool": lambda d, m, i, l, h, x: torch.sort(m.int(), dim=1, descending=True, stable=True)[1],
 "argsort": lambda d, m, i, l, h, x: l.argsort(descending=True),
 "sort rows": lambda d, m, i, l, h, x: x.sort(1)[1],
 "sort rows 0": lambda d, m, i, l, h, x: x.sort(0)[1],
 "topk": lambda d, m, i, l, h, x: x.topk(5, 1)[1].sort(1)[0],
 "topk smallest": lambda d, m, i, l, h, x: l.topk(2, largest=False)[1],
 "kthvalue": lambda d, m, i, l, h, x: x > x.kthvalue(9, 1, keepdim=True)[0],
 "median": lambda d, m, i, l, h, x: x > x.median(),
 "median dim": lambda d, m, i, l, h, x: x > x.median(1, keepdim=True)[0],
 "quantile": lambda d, m, i, l, h, x: x > torch.quantile(x, 0.8),
 "mode": lambda d, m, i, l, h, x: i.mode(1)[0],
 "var": lambda d, m, i, l, h, x: x > x.var(),
 "std dim": lambda d, m, i, l, h, x: x > x.std(1, keepdim=True),
 "norm": lambda d, m, i, l, h, x: x.norm(dim=1) > 7,
 "norm 1": lambda d, m, i, l, h, x: x.norm(p=1, dim=1) > 37,
 "linalg norm": lambda d, m, i, l, h, x: torch.linalg.vector_norm(x, dim=1) > 7,
 "mean": lambda d, m, i, l, h, x: x > x.mean(1, keepdim=True),
 "sum double": lambda d, m, i, l, h, x: m.double().sum(1),
 "prod": lambda d, m, i, l, h, x: (i % 3 + 1)[:, :20].prod(1),
 "logsumexp": lambda d, m, i, l, h, x: x.logsumexp(1) > 4,
 "softmax": lambda d, m, i, l, h, x: x.softmax(1) > 0.05,
 "log_softmax": lambda d, m, i, l, h, x: x.log_softmax(1) > -3,
 "normalize": lambda d, m, i, l, h, x: F.normalize(x, dim=1) > 0.1,
 "layer_norm": lambda d, m, i, l, h, x: F.layer_norm(x, (T,)) > 1,
 "cosine": lambda d, m, i, l, h, x: F.cosine_similarity(x[:, None], x[None], dim=-1) > 0,
 # 7 numbers
 "exp": lambda d, m, i, l, h, x: x.exp() > 2, "log": lambda d, m, i, l, h, x: l.log() > 3, "log2": lambda d, m, i, l, h, x: l.float().log2().ceil(),
 "log1p": lambda d, m, i, l, h, x: l.float().log1p() > 3, "expm1": lambda d, m, i, l, h, x: x.expm1() > 2,
 "sigmoid": lambda d, m, i, l, h, x: x.sigmoid() > 0.7, "tanh": lambda d, m, i, l, h, x: x.tanh() > 0.7, "sin": lambda d, m, i, l, h, x: l.sin() > 0, "cos": lambda d, m, i, l, h, x: l.float().cos() > 0,
 "relu": lambda d, m, i, l, h, x: x.relu() > 0, "gelu": lambda d, m, i, l, h, x: F.gelu(x) > 0.5, "erf": lambda d, m, i, l, h, x: x.erf() > 0.3,
 "pow": lambda d, m, i, l, h, x: (l ** 2) > 100, "pow half": lambda d, m, i, l, h, x: l.float() ** 0.5 > 4, "pow tensor": lambda d, m, i, l, h, x: torch.pow(2, l % 5), "pow tensors": lambda d, m, i, l, h, x: (l % 3) ** (l % 4),
 "rsqrt": lambda d, m, i, l, h, x: l.float().rsqrt() < 0.2, "round": lambda d, m, i, l, h, x: x.round(), "round long": lambda d, m, i, l, h, x: (x * 3).round().long(), "sign": lambda d, m, i, l, h, x: x.sign(), "frac": lambda d, m, i, l, h, x: x.frac() > 0.5,
 "divide": lambda d, m, i, l, h, x: (l / 4).ceil().long(), "true divide": lambda d, m, i, l, h, x: l / 7 > 2, "fmod": lambda d, m, i, l, h, x: torch.fmod(l, 5), "remainder float": lambda d, m, i, l, h, x: torch.remainder(x, 1.0) > 0.5,
 "floor divide float": lambda d, m, i, l, h, x: x // 0.3, "div trunc": lambda d, m, i, l, h, x: torch.div(l, 4, rounding_mode="trunc"), "div floor": lambda d, m, i, l, h, x: torch.div(l, 4, rounding_mode="floor"),
 "shift": lambda d, m, i, l, h, x: (l >> 2) << 1, "xor": lambda d, m, i, l, h, x: m ^ (i > 4), "logical_xor": lambda d, m, i, l, h, x: torch.logical_xor(m, i > 4),
 "clamp": lambda d, m, i, l, h, x: i.clamp(2, 5), "clamp tensors": lambda d, m, i, l, h, x: torch.minimum(i, l[:, None]), "clamp max tensor": lambda d, m, i, l, h, x: i.clamp(max=l[:, None]), "clamp both tensors": lambda d, m, i, l, h, x: torch.clamp(i, l[:, None] * 0 + 2, l[:, None]),
 "where scalar": lambda d, m, i, l, h, x: torch.where(m, i, -100), "where scalars": lambda d, m, i, l, h, x: torch.where(m, 1.0, 0.0), "where float": lambda d, m, i, l, h, x: torch.where(m, x, 0.0) > 0,
 "lerp": lambda d, m, i, l, h, x: torch.lerp(x, x.flip(1), 0.3) > 0, "addcmul": lambda d, m, i, l, h, x: torch.addcmul(x, x, x, value=2) > 0, "addcdiv": lambda d, m, i, l, h, x: torch.addcdiv(x, x, x * x + 1) > 0, "hypot": lambda d, m, i, l, h, x: torch.hypot(x, x) > 1,
 "isnan": lambda d, m, i, l, h, x: x.isnan(), "isinf": lambda d, m, i, l, h, x: (1 / (m.float())).isinf(), "isfinite": lambda d, m, i, l, h, x: (1 / (m.float())).isfinite(), "nan_to_num": lambda d, m, i, l, h, x: (1 / m.float()).nan_to_num(0, 7, -7), "isclose": lambda d, m, i, l, h, x: torch.isclose(x, x + 1e-9), "allclose": lambda d, m, i, l, h, x: torch.tensor(torch.allclose(x, x + 1)),
 "maximum": lambda d, m, i, l, h, x: torch.maximum(x, x.flip(1)) > 1, "heaviside": lambda d, m, i, l, h, x: torch.heaviside(x, x), "gcd": lambda d, m, i, l, h, x: torch.gcd(l, l.flip(0)), "bool mul": lambda d, m, i, l, h, x: m * (i > 4), "float mul": lambda d, m, i, l, h, x: m.float() * m.float().flip(1), "rsub": lambda d, m, i, l, h, x: 1 - m.long(), "neg": lambda d, m, i, l, h, x: -x > 0, "atan2": lambda d, m, i, l, h, x: torch.atan2(x, x.flip(1)) > 1, "threshold": lambda d, m, i, l, h, x: F.threshold(x, 0.5, 0) > 0, "abs": lambda d, m, i, l, h, x: x.abs() > 1, "square": lambda d, m, i, l, h, x: x.square() > 1, "leaky": lambda d, m, i, l, h, x: F.leaky_relu(x, 0.2) > -0.1, "softplus": lambda d, m, i, l, h, x: F.softplus(x) > 1,
 # 8 products
 "matmul": lambda d, m, i, l, h, x: m.float() @ m.float().T > 9, "bmm": lambda d, m, i, l, h, x: torch.bmm(m.float()[:, :, None], m.float()[:, None]) > 0, "einsum": lambda d, m, i, l, h, x: torch.einsum("bi,bj->bij", m.float(), m.float()) > 0, "outer": lambda d, m, i, l, h, x: torch.outer(l, l), "outer float": lambda d, m, i, l, h, x: torch.outer(l.float(), l.float()), "mv": lambda d, m, i, l, h, x: m.float().mv(torch.ones(T, device=d)) > 9, "dot": lambda d, m, i, l, h, x: torch.dot(l.float(), l.float()) > 9, "conv1d": lambda d, m, i, l, h, x: F.conv1d(m[:, None].float(), torch.ones(1, 1, 3, device=d), padding=1) > 2.5, "cdist": lambda d, m, i, l, h, x: torch.cdist(x[:, :2], x[:, :2]) < 1, "cdist large": lambda d, m, i, l, h, x: torch.cdist(h.view(-1, 4), h.view(-1, 4)) < 20, "pairs": lambda d, m, i, l, h, x: (x[:, None] - x[None]).pow(2).sum(-1) < 90, "baddbmm": lambda d, m, i, l, h, x: m.double() @ m.double().T > 9,
 # 9 moves
 "masked_select": lambda d, m, i, l, h, x: i.masked_select(m), "mask index": lambda d, m, i, l, h, x: i[m], "masked_scatter": lambda d, m, i, l, h, x: i.masked_scatter(m, i.flip(1)), "masked_scatter one": lambda d, m, i, l, h, x: torch.zeros_like(i).masked_scatter(m, torch.arange(B * T, device=d)), "take": lambda d, m, i, l, h, x: i.take(l), "index_select": lambda d, m, i, l, h, x: i.index_select(1, l - 1), "index_select 0": lambda d, m, i, l, h, x: i.index_select(0, l.argsort()), "take_along": lambda d, m, i, l, h, x: torch.take_along_dim(i, (l - 1)[:, None], 1), "gather": lambda d, m, i, l, h, x: i.gather(1, (l - 1)[:, None]), "scatter": lambda d, m, i, l, h, x: torch.zeros(B, 50, device=d, dtype=torch.long).scatter(1, l[:, None], 1), "scatter_reduce": lambda d, m, i, l, h, x: torch.zeros(9, device=d).scatter_reduce(0, i.flatten(), m.flatten().float(), "amax"), "index_add": lambda d, m, i, l, h, x: torch.zeros(9, device=d).index_add(0, i.flatten(), m.flatten().float()), "index_put": lambda d, m, i, l, h, x: i.index_put((torch.tensor([0, 1], device=d), torch.tensor([3, 4], device=d)), torch.tensor(77, device=d)), "index_put mask": lambda d, m, i, l, h, x: i.clone().masked_fill_(~m, -100), "put bool": lambda d, m, i, l, h, x: (lambda y: (y.__setitem__(~m, -100), y)[1])(i.clone()), "put mask values": lambda d, m, i, l, h, x: (lambda y: (y.__setitem__(m, i[m] + 1), y)[1])(i.clone()), "nonzero": lambda d, m, i, l, h, x: m.nonzero(), "nonzero tuple": lambda d, m, i, l, h, x: m.nonzero(as_tuple=True)[1], "argwhere": lambda d, m, i, l, h, x: torch.argwhere(i > 4), "repeat_interleave": lambda d, m, i, l, h, x: torch.repeat_interleave(l), "repeat_interleave by": lambda d, m, i, l, h, x: l.repeat_interleave(l), "embedding": lambda d, m, i, l, h, x: F.embedding(i, torch.arange(18, device=d).float().view(9, 2)) > 5, "slices": lambda d, m, i, l, h, x: (lambda y: (y[:, 3:7].fill_(1), y)[1])(i.clone()), "swap": lambda d, m, i, l, h, x: i.T.contiguous(), "permute": lambda d, m, i, l, h, x: h.permute(2, 0, 3, 1).contiguous() > 9, "movement": lambda d, m, i, l, h, x: i.view(B, 6, 8).transpose(1, 2).reshape(B, -1), "clone": lambda d, m, i, l, h, x: i.clone(), "double cast": lambda d, m, i, l, h, x: x.double().float() > 0, "int cast": lambda d, m, i, l, h, x: (x * 10).int(), "uint8": lambda d, m, i, l, h, x: i.to(torch.uint8) << 1, "tensor_split": lambda d, m, i, l, h, x: torch.tensor([len(p) for p in torch.split(i.flatten()[: int(l.sum())], l.tolist())]),
 "vmap": lambda d, m, i, l, h, x: torch.vmap(lambda a: m[0, a])(torch.arange(4, device=d)), "select scatter": lambda d, m, i, l, h, x: torch.select_scatter(i, l[:, None].expand(B, T)[:, 0], 1, 3), "all": lambda d, m, i, l, h, x: m.all(), "all dim": lambda d, m, i, l, h, x: m.all(1), "equal": lambda d, m, i, l, h, x: torch.tensor(torch.equal(m, m.clone())), "not equal": lambda d, m, i, l, h, x: torch.tensor(torch.equal(i, i.flip(1))), "trapezoid": lambda d, m, i, l, h, x: torch.trapezoid(x, dim=1) > 0, "segment": lambda d, m, i, l, h, x: torch.segment_reduce(x.flatten()[: int(l.sum())], "max", lengths=l) > 2, "nms-like": lambda d, m, i, l, h, x: (torch.min(x[:, None], x[None]) - torch.max(x[:, None], x[None]).clamp(min=0)).sum(-1) > 3, "linspace": lambda d, m, i, l, h, x: torch.linspace(0, 1, 11, device=d).round(decimals=1) > 0.4, "arange float": lambda d, m, i, l, h, x: torch.arange(0, 1, 0.1, device=d) > 0.45, "arange floats": lambda d, m, i, l, h, x: torch.arange(12, device=d, dtype=torch.float32) > 4, "arange half": lambda d, m, i, l, h, x: torch.arange(12, device=d, dtype=torch.bfloat16) > 4, "full": lambda d, m, i, l, h, x: torch.full((3, 4), 2.5, device=d) > 2, "full half": lambda d, m, i, l, h, x: torch.full((3, 4), 2.5, device=d, dtype=torch.bfloat16) > 2, "logspace": lambda d, m, i, l, h, x: torch.logspace(0, 3, 7, device=d) > 9, "random half": lambda d, m, i, l, h, x: x.half() > 0, "large and": lambda d, m, i, l, h, x: ((torch.arange(3000, device=d)[:, None] >= torch.arange(3000, device=d)[None]) & (torch.arange(3000, device=d)[None] < 1500))[1234], "large any": lambda d, m, i, l, h, x: (torch.arange(1500, device=d)[:, None] >= torch.arange(1500, device=d)[None] + 1498).any(), "large where": lambda d, m, i, l, h, x: torch.where(torch.arange(3000, device=d)[:, None] >= torch.arange(3000, device=d)[None], 0.0, -1e9)[5] < 0,
}
only = sys.argv[1:]
wrong = []
for name, f in P.items():
    if only and name not in only: continue
    want = f("cpu", mask, ids, lengths, heat, noise)
    try:
        got = f("cuda", mask.cuda(), ids.cuda(), lengths.cuda(), heat.cuda(), noise.cuda())
        got = got.cpu() if torch.is_tensor(got) else torch.tensor(got)
        want = want if torch.is_tensor(want) else torch.tensor(want)
        ok = got.shape == want.shape and bool((got == want).all())
        if not ok: wrong.append(name); print("WRONG", name, list(want.shape), list(got.shape), want.flatten()[:6].tolist(), got.flatten()[:6].tolist())
    except Exception as e:
        wrong.append(name); print("FAILS", name, str(e)[:150])
print(len(P), "programs,", len(wrong), "wrong")

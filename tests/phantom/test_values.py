"""What a program can read back from a device that computes nothing: what it put there, and else zeros."""

import pytest


def test_small_values_come_back(phantom):
    ran = phantom(
        """
        import json, torch
        x = torch.arange(1000, dtype=torch.int64)
        y = x.cuda()
        half = torch.tensor([0.5, -2.0], dtype=torch.bfloat16)
        out = [bool((y.cpu() == x).all()), y[17].item(), y[3:6].tolist(), y.view(10, 100)[4, 4].item(), half.cuda().tolist()]
        z = torch.empty(1000, dtype=torch.int64, device="cuda")
        z.copy_(y)
        out.append(z[999].item())
        z[5:10].copy_(torch.tensor([7, 7, 7, 7, 7]))
        out.append(z[4:11].tolist())
        out.append(torch.tensor(3.25, device="cuda").item())
        pinned = torch.full((3,), 9, dtype=torch.int32).pin_memory()
        out.append(pinned.to("cuda", non_blocking=True).tolist())
        out.append(torch.zeros(4, device="cuda").tolist())
        print(json.dumps(out))
        """
    )
    assert ran.values == [True, 17, [3, 4, 5], 404, [0.5, -2.0], 999, [4, 7, 7, 7, 7, 7, 10], 3.25, [9, 9, 9], [0, 0, 0, 0]]


def test_what_nobody_knows_is_zeros_and_counted(phantom):
    ran = phantom(
        """
        import json, torch
        a = torch.ones(64, 64, device="cuda")
        b = a @ a
        out = [b.sum().item(), b[0, :3].tolist(), b[0, :9].argmax().item(), torch.empty(3, device="cuda").log_normal_().tolist()]
        print(json.dumps(out))
        """
    )
    assert ran.values == [pytest.approx(0.0, abs=1e-40), [0.0, 0.0, 0.0], 0, [0.0, 0.0, 0.0]]
    assert ran.report["unknown_reads"] == {"count": 4, "bytes": 4 + 12 + 8 + 12}


def test_a_loss_that_nobody_knows_can_be_divided_by(phantom):
    """A peak signal-to-noise ratio, a perplexity, bits: validation loops take logarithms of what they measured."""
    ran = phantom(
        """
        import json, math, torch
        out = []
        for kind in (torch.float32, torch.bfloat16, torch.float16):
            loss = torch.ones(4, 64, device="cuda", dtype=kind).matmul(torch.ones(64, 4, device="cuda", dtype=kind)).mean()
            out += [10 * math.log10(1 / loss.item()) > 0, math.exp(loss.item()), loss.item() < 1e-6, loss.isnan().item(), int(loss)]
        print(json.dumps(out))
        """
    )
    assert ran.values == 3 * [True, pytest.approx(1.0), True, False, 0]


def test_a_tensor_never_reads_what_its_address_held_before(phantom):
    """Or a script would see the values of another tensor, which looks like a result."""
    ran = phantom(
        """
        import json, torch
        out = []
        for n in (100, 300_000):
            old = torch.full((n,), 7, dtype=torch.int32).cuda()
            address = old.data_ptr()
            del old
            new = torch.empty(n, dtype=torch.int32, device="cuda")
            assert new.data_ptr() == address
            out.append(new.max().item())
            out.append(new[:3].tolist())
            del new
        print(json.dumps(out))
        """
    )
    assert ran.values == [0, [0, 0, 0], 0, [0, 0, 0]]


def test_floats_are_computed_and_forgotten_where_a_kernel_is_not_followed(phantom):
    ran = phantom(
        """
        import json, torch
        x = torch.tensor([5.0, 6.0], device="cuda")
        x.add_(1)
        y = x * 2 + 1
        z = y.erf_()
        print(json.dumps([x.tolist(), y.tolist(), (x > 6).nonzero().shape[0]]))
        """
    )
    assert ran.values == [[6.0, 7.0], [0.0, 0.0], 1]


def test_tests_are_answered_with_yes_and_it_is_said(phantom):
    ran = phantom(
        """
        import json, torch
        mask = torch.empty(8, 128, device="cuda").log_normal_().abs().bool()
        out = [bool(mask.all()), bool(mask.sum() == mask.numel()), bool(torch.equal(mask, mask.clone()))]
        print(json.dumps(out))
        """
    )
    assert ran.values == [True, True, True]
    said = " ".join(ran.approximated)
    assert "answered all() with yes" in said and "answered == with yes" in said


def test_counts_of_what_nobody_knows_are_zero(phantom):
    ran = phantom(
        """
        import json, torch
        x = torch.empty(64, device="cuda").log_normal_()
        mask = x > 0
        out = [bool(mask.any()), mask.nonzero().shape[0], x[mask].numel(), torch.unique(x).numel() <= 64,
               torch.masked_select(x, mask).numel(), bool((x > 100).any())]
        print(json.dumps(out))
        """
    )
    assert ran.values == [False, 0, 0, True, 0, False]
    assert 4 <= ran.report["unknown_reads"]["count"]


@pytest.mark.soak
def test_masks_of_millions_are_computed_where_they_are_read(phantom):
    """Attention over a thousand tokens: whether any is masked is read from the first row of a mask that was written out in full."""
    ran = phantom(
        """
        import json, torch
        wrong = []
        lengths = torch.tensor([1000, 17, 400, 999])
        def masks(device):
            n = lengths.to(device)
            places = torch.arange(1024, device=device)
            seen = (places[None, None, None] < n[:, None, None, None]) & (places[None, None, :, None] >= 0)
            floats = torch.where(seen, torch.tensor(0.0, device=device), torch.finfo(torch.float32).min)
            row = floats[:, 0, 0, :]
            row[(places[None] == 0).expand(4, 1024)] = 1.0
            causal = torch.ones(2000, 2000, dtype=torch.bool, device=device) & (places[:1].long() == torch.zeros(1, dtype=torch.long, device=device))
            causal = causal & (torch.arange(2000, device=device)[:, None] >= torch.arange(2000, device=device)[None])
            return [(row < 0).flatten(), (row > 0).any(), floats[1, 0, 900, :20] < 0, floats[2, 0, :, 3] < 0, causal[70], causal[:, 1990], causal.sum(), causal.nonzero().shape[0], (~causal).any()]
        for i, (want, got) in enumerate(zip(masks("cpu"), masks("cuda"))):
            if torch.as_tensor(want).tolist() != torch.as_tensor(got).tolist(): wrong.append(i)
        print(json.dumps(wrong))
        """
    )
    assert ran.values == []
    assert ran.report["unknown_reads"]["count"] == 0


def test_sums_of_masks_of_two_shapes_are_computed_where_they_are_read(phantom):
    """`nn.MultiheadAttention` adds a mask for the future to one for the padding, in each layer and at each step of a greedy decoding."""
    ran = phantom(
        """
        import json, torch
        def sums(device):
            n = torch.tensor([100, 7, 128, 64], device=device)
            ahead = torch.ones(128, 128, dtype=torch.bool, device=device).triu(1)
            future = torch.zeros(128, 128, device=device).masked_fill_(ahead, -1e4)
            padding = torch.zeros(4, 128, device=device).masked_fill_(torch.arange(128, device=device)[None] >= n[:, None], -1e4)
            padding = padding.view(4, 1, 1, 128).expand(-1, 16, -1, -1).reshape(64, 1, 128)
            both = future + padding
            future.fill_(7.0)
            parts = [both[3, 9], both[20, :, 8], both[63, 127], (both[40] < 0), both[17:19, 5, 3:9]]
            return [it.float().tolist() for it in parts] + [(both < 0).sum().item()]
        want, got = sums("cpu"), sums("cuda")
        print(json.dumps([i for i, (a, b) in enumerate(zip(want, got)) if a != b]))
        """
    )
    assert ran.values == []
    assert ran.report["unknown_reads"]["count"] == 0


def test_pooled_masks_and_pictures_are_computed(phantom):
    """Which frames a convolution still sees, which places of a heat map are peaks, a mask at the resolution of the features."""
    ran = phantom(
        """
        import json, torch
        import torch.nn.functional as F
        torch.manual_seed(2)
        mask = torch.arange(50)[None] < torch.tensor([50, 3, 17, 30])[:, None]
        heat = (torch.rand(2, 3, 13, 16) * 20).floor()
        ways = {
            "sequence": lambda m, x: F.max_pool1d(m[:, None].float(), 4, 4, ceil_mode=True)[:, 0].bool().nonzero(),
            "overlapping": lambda m, x: F.max_pool1d(m[:, None].double(), 5, 2, padding=2)[:, 0] > 0,
            "peaks": lambda m, x: (F.max_pool2d(x, 3, 1, 1) == x).nonzero(),
            "places": lambda m, x: F.max_pool2d(x, 2, return_indices=True)[1],
            "erosion": lambda m, x: -F.max_pool2d(-x, (2, 3), (1, 2)) > 5,
            "mean of a sequence": lambda m, x: F.avg_pool1d(m[:, None].float(), 4) > 0.5,
            "mean": lambda m, x: F.avg_pool2d(x, 3, 2, 1) > 9,
            "mean within": lambda m, x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False) > 9,
            "mean by five": lambda m, x: F.avg_pool2d(x, 2, divisor_override=5) > 9,
            "largest shares": lambda m, x: F.adaptive_max_pool2d(x, (5, 6)) > 15,
            "mean shares": lambda m, x: F.adaptive_avg_pool2d(x, (5, 6)) > 9,
            "features": lambda m, x: F.interpolate(x, size=(7, 5)) > 9,
            "twice": lambda m, x: F.interpolate(x, scale_factor=2) > 9,
            "exact": lambda m, x: F.interpolate(x, size=(7, 5), mode="nearest-exact") > 9,
            "shorter": lambda m, x: F.interpolate(m[:, None].float(), size=13)[:, 0].bool(),
            "rolled": lambda m, x: m.roll(3, 1),
            "rolled back": lambda m, x: x.roll((-1, 2), (2, 3)) > 9,
        }
        wrong = [name for name, f in ways.items() if f(mask, heat).tolist() != f(mask.cuda(), heat.cuda()).tolist()]
        print(json.dumps(wrong))
        """
    )
    assert ran.values == []
    assert ran.report["unknown_reads"]["count"] == 0


def test_what_is_computed_of_numbers_is_as_on_the_cpu(phantom):
    """Masks in half precision, functions, sums and products from the start: on random numbers, against the same on the CPU."""
    ran = phantom(
        """
        import json, torch
        torch.manual_seed(4)
        ids = torch.randint(0, 9, (6, 48))
        mask = torch.arange(48)[None] < torch.tensor([48, 3, 17, 30, 22, 9])[:, None]
        x = torch.randn(6, 48)
        def ways(m, i, x):
            yield from ((1.0 - m.to(kind)) * torch.finfo(kind).min < 0 for kind in (torch.bfloat16, torch.float16))
            for kind in (torch.bfloat16, torch.float16):
                zero = torch.tensor(0.0, device=m.device, dtype=kind)
                bias = torch.where(m[:, None, :] & m[:, :, None], zero, torch.finfo(kind).min)
                yield from (bias == 0, bias.masked_fill(m[:, None], 7.0).float(), (bias / 3 + 1).clamp(-5, 0.1).float(), -bias.abs() < 0)
                yield from (x.to(kind).float(), x.to(kind) > 0.5, (x.to(kind) + x.flip(1).to(kind)).float(), (x.to(kind) * 1.7).float(), 2 - x.to(kind) == 1.5)
                yield from (m.to(kind).sum(1).long(), m.to(kind).sum(dtype=torch.float32), x.to(kind).amax(1).float(), x.to(kind).max().item(), m.to(kind).any(1), m.to(kind).nonzero(), i.to(kind).long())
            yield from (f(x) > 0.4 for f in (torch.exp, torch.expm1, torch.sin, torch.cos, torch.tanh, torch.sigmoid))
            yield from (f(x.abs() + 0.01) > 0.4 for f in (torch.log, torch.log2, torch.log10, torch.log1p, torch.rsqrt))
            yield from ((i + 1).float().log2().ceil(), (x * 3).round().long(), x.sign(), i.sign(), i.sigmoid() > 0.7)
            yield from (i << 2, i >> 1, torch.logical_xor(m, i > 4), torch.fmod(i - 4, 3), torch.fmod(x, 0.5) > 0.1, torch.remainder(x, 1.0) > 0.5)
            yield from (m.float().cumsum(1), m.double().cumsum(0), i[0].float().cumsum(0), m[2].cumsum(0), (i != 3).long().cumprod(1), (i[1] != 3).int().cumprod(0), (1 - x.abs() / 9).cumprod(1) > 0.1)
            yield from (torch.unique_consecutive(m[2]), torch.unique(i.float()), torch.unique_consecutive(i[0] > 4), torch.arange(0, 1, 0.1, device=m.device) > 0.45, torch.arange(12, device=m.device, dtype=torch.float64))
        wrong = []
        for n, (want, got) in enumerate(zip(ways(mask, ids, x), ways(mask.cuda(), ids.cuda(), x.cuda()))):
            if torch.as_tensor(want).tolist() != torch.as_tensor(got).tolist(): wrong.append(n)
        print(json.dumps(wrong))
        """
    )
    assert ran.values == []
    assert ran.report["unknown_reads"]["count"] == 0


def test_large_tables_of_indices_are_known_and_large_floats_are_not(phantom):
    """The neighbours of each node: how many different ones a batch has decides how much is computed for them."""
    ran = phantom(
        """
        import json, torch
        torch.manual_seed(3)
        table, seeds = torch.randint(0, 50_000, (50_000, 12)), torch.randperm(50_000)[:1024]
        def different(table, seeds):
            near, place = torch.unique(torch.cat([seeds, table[seeds][:, :10].flatten()]), return_inverse=True)
            return [near.numel(), int(place.sum()), int(table[near][:, :10].sum())]
        noise = torch.rand(600_000)
        print(json.dumps([different(table, seeds) == different(table.cuda(), seeds.cuda()), (noise.cuda() > 0.5).sum().item()]))
        """
    )
    assert ran.values == [True, 0]


def test_a_gradient_that_is_one_number_everywhere_is_known(phantom):
    """What `mean()` gives back: one element that is spread and divided, in whichever order its dimensions lie."""
    ran = phantom(
        """
        import json, torch
        one = torch.tensor(3.0).cuda()
        x = torch.zeros(300, 200, 100, device="cuda", requires_grad=True)
        x.transpose(0, 2).mean().backward()
        spread = one.expand(100, 200, 300).transpose(0, 1) / 4
        part = torch.zeros(100, 400, device="cuda")
        torch.div(one.expand(100, 200), 4, out=part[:, :200])
        print(json.dumps([x.grad[0, 5, 99].item() * x.numel(), spread[199, 99, 299].item(), spread[0, 0, 0].item(), part[99, 199].item(), part[99, 200].item()]))
        """
    )
    assert ran.values == [pytest.approx(1.0), 0.75, 0.75, 0.75, 0.0]


def test_the_report_names_what_was_guessed(plimsoll):
    script = plimsoll.script(
        """
import torch
net = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(9):
    x = torch.empty(8, 64, device="cuda").log_normal_()
    if (x > 0).all():  # asked
        pass
    n = (x > 0).nonzero().shape[0]  # counted
    opt.zero_grad(); net(x).sum().backward(); opt.step()
"""
    )
    ran = plimsoll.predict(script, options=["--gpu", "h200"])
    assert ran.code == 0, ran
    notes = {it["code"]: it["text"] for it in ran.report["notes"]}
    assert "train.py:7" in notes["unknown-reads"] and "train.py:9" in notes["unknown-reads"], notes
    guessed = [it["text"] for it in ran.report["notes"] if it["code"] == "approximated"]
    assert any("answered all() with yes" in it for it in guessed), guessed
    assert any("--assume nonzero=0.1" in it for it in guessed), guessed


def test_small_whole_numbers_are_computed(phantom):
    """Every kernel that is followed, on random numbers, against the same on the CPU."""
    ran = phantom(
        """
        import json, operator, random, torch
        random.seed(5)
        wrong, unknown = [], 0
        kinds = [torch.int64, torch.int32, torch.bool, torch.uint8, torch.int16]
        def some(n, kind):
            return torch.tensor([random.randint(0, 3) for _ in range(n)]).to(kind)
        two = {name: getattr(torch, name) for name in "bitwise_and bitwise_or bitwise_xor mul add sub eq ne lt le gt ge logical_and logical_or".split()}
        one = {
            "not": torch.bitwise_not, "logical_not": torch.logical_not, "int": lambda x: x.to(torch.int32), "bool": lambda x: x.bool(), "long": lambda x: x.long(),
            "rsub": lambda x: 7 - x.long(), "plus": lambda x: x.long() + 3, "times": lambda x: x * 2, "is": lambda x: x == 2, "not is": lambda x: x != 1,
            "below": lambda x: x < 2, "above": lambda x: x > 1, "at most": lambda x: x <= 1, "at least": lambda x: x >= 2, "from below": lambda x: 2 < x, "minus": lambda x: x.long().sub(2, alpha=3),
            "max": lambda x: x.long().max(), "min": lambda x: x.int().min(), "all": lambda x: x.bool().all(), "any": lambda x: x.bool().any(), "sum": lambda x: x.long().sum(),
            "none": lambda x: x.long().max() == 0, "filled": lambda x: torch.full_like(x, 1), "in place": lambda x: x.clone().long().add_(5), "zeroed": lambda x: x.clone().zero_(),
        }
        for n in (1, 2, 7, 64, 1000):
            for kind in kinds:
                a = some(n, kind)
                for name, f in one.items():
                    want, got = f(a).flatten().tolist(), f(a.cuda()).flatten().tolist()
                    if want != got: wrong.append([name, n, str(kind), want[:5], got[:5]])
                for other in kinds:
                    b = some(n, other)
                    for name, f in two.items():
                        if "sub" == name and torch.bool in (kind, other): continue
                        want, got = f(a, b).tolist(), f(a.cuda(), b.cuda()).tolist()
                        if want != got: wrong.append([name, n, str(kind), str(other), want[:5], got[:5]])
        print(json.dumps(wrong))
        """
    )
    assert ran.values == []
    assert ran.report["unknown_reads"]["count"] == 0


def test_whole_numbers_that_do_not_lie_in_a_row_are_computed(phantom):
    """Rows against columns, slices, ranges made on the device: what masks of lengths are made of."""
    ran = phantom(
        """
        import json, random, torch
        random.seed(6)
        wrong = []
        kinds = [torch.int64, torch.int32, torch.bool]
        def some(n, kind):
            return torch.tensor([random.randint(0, 3) for _ in range(n)]).to(kind)
        two = {name: getattr(torch, name) for name in "bitwise_and bitwise_or mul add sub eq ne lt le gt ge logical_and minimum maximum floor_divide remainder".split()}
        two["where"] = lambda a, b: torch.where(a > 1, a, b)
        two["masked"] = lambda a, b: (a + 0 * b).masked_fill(b == 1, 5)
        one = {"every other": lambda x: x[::2].long(), "negative": lambda x: -x.long(), "sizes": lambda x: x.long().sub(2).abs(), "halves": lambda x: (x.long() - 2) // 2, "rest": lambda x: (x.long() - 2) % 3}
        for rows, columns in ((1, 5), (3, 4), (40, 300)):
            for kind in kinds:
                a = some(rows, kind)
                for name, f in one.items():
                    want, got = f(a).tolist(), f(a.cuda()).tolist()
                    if want != got: wrong.append([name, str(kind), want[:5], got[:5]])
                for other in kinds:
                    b = some(columns, other)
                    for name, f in two.items():
                        if torch.bool in (kind, other) and name in ("sub", "floor_divide", "remainder", "masked"): continue
                        if name in ("floor_divide", "remainder"): b = b + 1
                        want, got = f(a[:, None], b[None]).tolist(), f(a.cuda()[:, None], b.cuda()[None]).tolist()
                        if want != got: wrong.append([name, rows, str(kind), str(other), want[:2], got[:2]])
        lengths = torch.tensor([3, 1, 4, 1, 5])
        def masks(lengths):
            mask = torch.arange(6, device=lengths.device)[None] < lengths[:, None]
            return [mask.tolist(), mask.sum().item(), mask.sum(1).tolist(), len(torch.ones(5, 6, 8, device=lengths.device)[mask]), torch.arange(2, 11, 3, device=lengths.device, dtype=torch.int32).tolist()]
        if masks(lengths) != masks(lengths.cuda()): wrong.append(masks(lengths.cuda()))
        print(json.dumps(wrong))
        """
    )
    assert ran.values == []


def test_lengths_of_images_are_known_after_their_features_were_put_between_the_words(phantom):
    """Qwen2-VL: `masked_scatter` first launches a kernel that only compares sizes. The backward pass reads the lengths again."""
    ran = phantom(
        """
        import json, torch
        lengths = torch.tensor([12, 20], device="cuda").cumsum(0)
        words = torch.zeros(4, 64, device="cuda", dtype=torch.bfloat16)
        is_image = (torch.tensor([1, 2, 3, 3]) == 3).cuda()[:, None].expand(4, 64)
        words.masked_scatter(is_image, torch.zeros(2, 64, device="cuda", dtype=torch.bfloat16))
        print(json.dumps([lengths.tolist(), (lengths[1:] - lengths[:-1]).tolist()]))
        """
    )
    assert ran.values == [[12, 32], [20]]


def test_a_computed_number_is_forgotten_when_it_may_have_changed(phantom):
    ran = phantom(
        """
        import json, torch
        x = torch.full((4,), 7, device="cuda")
        y = torch.full((4,), 7, device="cuda")
        z = torch.full((4,), 7, device="cuda")
        z[torch.tensor([1], device="cuda")] = 3
        x[torch.empty(1, 9, device="cuda").log_normal_().matmul(torch.empty(9, 4, device="cuda").log_normal_()).argmax(-1)] = 3
        print(json.dumps([x.tolist(), z.tolist(), torch.full((4,), 7, device="cuda").tolist(), (y.float() * 2).tolist()]))
        """
    )
    assert ran.values == [[0, 0, 0, 0], [7, 3, 7, 7], [7, 7, 7, 7], [14.0, 14.0, 14.0, 14.0]]
    assert ran.report["unknown_reads"]["count"] == 1


def test_what_any_found_is_no_in_any_type(phantom):
    """As a loop of one's own looks for overflows before its ranks agree on it."""
    ran = phantom(
        """
        import json, torch
        g = torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")
        bad = (~torch.isfinite(g)).any()
        out = [bad.item(), bad.float().item(), bad.half().item(), bad.int().item(), bad.long().item(), bad.double().item()]
        print(json.dumps([bool(it) for it in out] + [bool(g.sum().item())]))
        """
    )
    assert ran.values == [False] * 6 + [True], "and another number is nearly zero"


def test_a_batch_of_one_is_not_taken_for_a_packed_one(phantom):
    """As Hugging Face asks of position numbers: are there gaps?"""
    ran = phantom(
        """
        import json, torch
        out = []
        for batch in (1, 3):
            gaps = (torch.arange(9000, device="cuda").expand(batch, -1).diff() != 1).cumsum(-1)
            out.append(bool((gaps[:, -1] == 0).all()))
        print(json.dumps(out))
        """
    )
    assert ran.values == [True, True]


@pytest.mark.parametrize("or_at_a_token", ["", "| torch.isin(ids[:, -1], end)", "| (ids[:, -1] == 2)"])
def test_text_generation_ends_at_its_length(phantom, or_at_a_token):
    """As in the loop of Hugging Face: ended by a mask that is made of known numbers, whatever the tokens are."""
    ran = phantom(
        """
        import json, torch
        end = torch.tensor([2], device="cuda")
        unfinished, length, steps = torch.ones(3, dtype=torch.long, device="cuda"), 4, 0
        ids = torch.zeros(3, length, dtype=torch.long, device="cuda")
        flag = torch.zeros((), dtype=torch.bool, pin_memory=True)
        while steps < 50:
            ids = torch.cat([ids, torch.empty(3, 9, device="cuda").log_normal_().argmax(-1)[:, None]], -1)
            done = torch.full((3,), ids.shape[1] >= 10, device="cuda", dtype=torch.bool) OR_AT_A_TOKEN
            unfinished = unfinished & ~done
            steps += 1
            flag.copy_(unfinished.max() == 0, non_blocking=True)
            torch.cuda.synchronize()
            if flag: break
        print(json.dumps([steps, ids.shape[1]]))
        """.replace("OR_AT_A_TOKEN", or_at_a_token)
    )
    assert ran.values == [6, 10]


def test_whole_numbers_along_a_dimension_are_computed(phantom):
    """Lengths that a script takes from its padded labels, and hands to CTC."""
    ran = phantom(
        """
        import json, torch
        labels = torch.tensor([[5, 7, -1, -1], [3, 9, 2, -1], [4, 4, 4, 4]]).cuda()
        known = labels >= 0
        lengths, chosen = known.sum(-1), labels.masked_select(known)  # Reading some of it changes nothing.
        cube = torch.arange(24).view(2, 3, 4).cuda()
        out = [lengths, known.sum(0), (cube > 4).sum((0, 2)), cube.transpose(0, 1).amax(2), (cube > 3).all(-1), cube.to(torch.int32).sum()]
        print(json.dumps([it.tolist() for it in out]))
        """
    )
    assert ran.values == [
        [2, 3, 4],
        [3, 3, 2, 1],
        [4, 7, 8],
        [[3, 15], [7, 19], [11, 23]],
        [[False, True, True], [True, True, True]],
        276,
    ]


def test_a_mask_that_is_padded_or_filled_in_part_is_known(phantom):
    """Masks are padded to the next multiple of something; each row is one run."""
    ran = phantom(
        """
        import json, torch
        from torch.nn.functional import pad
        ones = torch.ones(4, 1000, dtype=torch.int64, device="cuda")
        out = [pad(ones, (0, 24)).sum().item(), pad(ones, (24, 0), value=3).sum().item(), pad(ones > 0, (0, 24)).sum().item()]
        sevens = torch.full((4, 1024), 7, device="cuda")
        sevens[:, 24:] = 1
        out += [sevens.sum().item(), sevens[3, 23].item(), sevens[3, 24].item()]
        print(json.dumps(out))
        """
    )
    assert ran.values == [4000, 4288, 4000, 4672, 7, 1]


def test_sequences_that_are_packed_unsorted_have_their_lengths_back(phantom):
    """The order that sorts them is turned round by a scatter into a new tensor."""
    ran = phantom(
        """
        import json, torch
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0]]).cuda()
        packed = pack_padded_sequence(torch.randn(4, 4, 8, device="cuda"), mask.sum(1).cpu(), True, enforce_sorted=False)
        padded, lengths = pad_packed_sequence(torch.nn.GRU(8, 5, batch_first=True).cuda()(packed)[0], True)
        out = [list(packed.data.shape), packed.unsorted_indices.tolist(), list(padded.shape), lengths.tolist()]
        print(json.dumps(out))
        """
    )
    assert ran.values == [[10, 8], [2, 0, 3, 1], [4, 4, 5], [2, 4, 1, 3]]
    assert ran.report["unknown_reads"]["count"] == 0


def test_what_is_scattered_over_all_of_it_is_known_and_over_a_part_is_not(phantom):
    ran = phantom(
        """
        import json, torch
        unknown = lambda: (torch.empty(6, 3, device="cuda").log_normal_() @ torch.empty(3, 2, device="cuda").log_normal_())[:, 0].long() + 5
        order, numbers = torch.tensor([2, 0, 3, 1]).cuda(), torch.tensor([10, 11, 12, 13]).cuda()
        whole, beginning, holes, twice = unknown()[:4], unknown(), unknown(), unknown()[:4]
        whole.scatter_(0, order, numbers)
        beginning.scatter_(0, order, numbers)  # The last two stay what they were.
        holes.scatter_(0, order * 5 // 4 + 2, numbers)
        twice.scatter_(0, torch.tensor([1, 1, 2, 3]).cuda(), numbers)  # The first stays what it was.
        out = [it.tolist() for it in (whole, beginning, holes, twice)]
        print(json.dumps(out))
        """
    )
    assert ran.values == [[11, 13, 10, 12], [11, 13, 10, 12, 0, 0], 6 * [0], 4 * [0]]
    assert ran.report["unknown_reads"] == {"count": 3, "bytes": (2 + 6 + 4) * 8}


def test_indices_of_sparse_tensors_of_several_dimensions_are_put_together(phantom):
    ran = phantom(
        """
        import json, torch
        def left(index, shape):
            it = torch.sparse_coo_tensor(index.cuda(), torch.randn(index.shape[1], device="cuda"), shape).coalesce()
            return [it._nnz(), it.indices().tolist()]
        edges = torch.tensor([[0, 1, 1, 2, 0], [2, 0, 0, 2, 2]])
        out = [left(edges, (3, 3)), left(torch.cat([edges, edges.flip(0)[:1]]), (3, 3, 3)), left(edges.t().contiguous().t(), (3, 3))]
        out.append(left(torch.tensor([[1, 1], *[[0, 1]] * 8]), (2,) * 9)[0])  # Nine dimensions are not followed: assumed, and said.
        print(json.dumps(out))
        """
    )
    flat = [3, [[0, 1, 2], [2, 0, 2]]]
    assert ran.values == [flat, [3, [[0, 1, 2], [2, 0, 2], [2, 0, 2]]], flat, 2]
    assert any("coalesce()" in it for it in ran.approximated)


def test_columns_in_an_order_that_is_not_followed_are_not_known(phantom):
    ran = phantom(
        """
        import json, torch
        edges = torch.tensor([[2, 1, 1, 0], [1, 2, 0, 2]]).cuda()
        columns = torch.unique(edges, dim=1)
        print(json.dumps([columns.shape[1], columns.tolist()]))
        """
    )
    assert ran.values == [4, 2 * [4 * [0]]]
    assert ran.report["unknown_reads"]["bytes"] == 4 + 2 * 4 * 8  # How many there are, too.


def test_what_is_selected_along_a_dimension_is_known(phantom):
    ran = phantom(
        """
        import json, torch
        counts = torch.tensor([2, 0, 3, 1]).cuda()
        table = torch.arange(12).view(3, 4).cuda()
        places = torch.tensor([2, 0, 2]).cuda()
        many = torch.arange(40).cuda() % 3
        out = [torch.arange(10, 14).cuda().repeat_interleave(counts), table.index_select(1, places), table.t().index_select(0, places)]
        out += [table[:, :3].index_select(0, places), (table > 4).index_select(1, places), table.index_select(1, many).sum(0), table[:, 1].index_select(0, many)]
        cpu = [torch.arange(10, 14).repeat_interleave(counts.cpu())]
        host, there, all = table.cpu(), places.cpu(), many.cpu()
        cpu += [host.index_select(1, there), host.t().index_select(0, there), host[:, :3].index_select(0, there), (host > 4).index_select(1, there)]
        cpu += [host.index_select(1, all).sum(0), host[:, 1].index_select(0, all)]
        unknown = (torch.empty(3, 3, device="cuda").log_normal_() @ torch.empty(3, 2, device="cuda").log_normal_())[:, 0].long()
        print(json.dumps([[a.tolist() == b.tolist() for a, b in zip(out, cpu)], table[0].index_select(0, unknown).tolist()]))
        """
    )
    assert ran.values == [7 * [True], [0, 0, 0]]
    assert ran.report["unknown_reads"] == {"count": 1, "bytes": 24}


def test_counts_of_numbers_of_other_types_are_known_and_weights_are_not(phantom):
    """Experts' tokens by `histc` of `int32`, as transformers counts them."""
    ran = phantom(
        """
        import json, torch
        experts = torch.tensor([0, 2, 1, 0, 0, 2]).cuda()
        out = [torch.histc(it, bins=4, min=0, max=3).tolist() for it in (experts.int(), experts.float(), experts.double())]
        out.append(torch.histc(torch.tensor([0.0, 1, 1, 2, 3.5, 4, 9]).cuda(), bins=4, min=0, max=4).tolist())
        out.append(torch.bincount(experts, weights=experts.float()).tolist())
        unknown = (torch.empty(6, 3, device="cuda").log_normal_() @ torch.empty(3, 2, device="cuda").log_normal_())[:, 0]
        out.append(torch.histc(unknown, bins=2, min=-9, max=9).tolist())
        print(json.dumps(out))
        """
    )
    assert ran.values == [*3 * [[3, 1, 2, 0]], [1, 2, 1, 2], [0, 0, 0], [0, 0]]
    assert ran.report["unknown_reads"] == {"count": 2, "bytes": 12 + 8}


def test_what_is_unique_is_counted_truly_or_assumed(phantom):
    ran = phantom(
        """
        import json, torch
        x = torch.tensor([3, 1, 3, 2] * 5).cuda()
        unique, place = torch.unique(x, return_inverse=True)
        out = [torch.unique(x).tolist(), unique.tolist(), len(place), len(torch.unique_consecutive(x))]
        out.append(len(torch.repeat_interleave(torch.arange(4).cuda(), torch.tensor([2, 0, 3, 1]).cuda())))
        unknown = torch.empty(5000, 3, device="cuda").log_normal_() @ torch.empty(3, 2, device="cuda").log_normal_()
        out += [len(torch.unique(unknown[:, 0])), len(torch.unique(unknown, dim=0)), len(torch.unique(unknown[:9, 0], return_counts=True)[1])]
        print(json.dumps(out))
        """
    )
    assert ran.values == [[1, 2, 3], [1, 2, 3], 20, 20, 6, 5000, 5000, 9]
    assert any("unique()" in it for it in ran.approximated)


def test_indices_of_a_sparse_tensor_that_are_known_are_put_together(phantom):
    ran = phantom(
        """
        import json, torch
        from torch import nn

        def left(index, shape):
            it = torch.sparse_coo_tensor(index.cuda(), torch.empty(index.shape[1], 4, device="cuda").log_normal_(), shape)
            one = it.coalesce()
            return [one._nnz(), one.indices().tolist(), (one + one).coalesce()._nnz()]

        out = [left(torch.tensor([[5, 2, 5, 2, 0]]), (9, 4))]

        # Drawn on the device; those of both parts are put together.
        table = nn.Embedding(60, 100, sparse=True, device="cuda")
        first, second = torch.randint(60, (5000,), device="cuda"), torch.randint(30, (100,), device="cuda")
        (table(first).sum() + table(second).sum()).backward()
        out.append([table.weight.grad._nnz(), table.weight.grad.coalesce()._nnz(), len(set((first.tolist() + second.tolist())))])
        many = torch.randint(2_500_000, (1_000_000,), device="cuda")
        found = torch.sparse_coo_tensor(many[None], torch.ones(1_000_000, 1, device="cuda"), (2_500_000, 1)).coalesce()._nnz()
        out.append(found == len(set(many.tolist())))

        unknown = (torch.empty(500, 3, device="cuda").log_normal_() @ torch.empty(3, 2, device="cuda").log_normal_())[:, 0].long()[None]
        out.append(torch.sparse_coo_tensor(unknown, torch.ones(500, device="cuda"), (600,)).coalesce()._nnz())
        print(json.dumps(out))
        """
    )
    assert ran.values[0] == [3, [[0, 2, 5]], 3]
    parts, left, found = ran.values[1]
    assert (parts, left) == (5100, found)
    assert ran.values[2:] == [True, 500]
    assert any("coalesce()" in it for it in ran.approximated)


def test_what_deterministic_algorithms_put_into_new_tensors_is_no_size(phantom):
    ran = phantom(
        """
        import json, torch
        torch.use_deterministic_algorithms(True, warn_only=True)  # What is new holds the largest number then.
        x = torch.tensor([0.0, 0.0, 1.0, 2.0, 2.0]).cuda()
        out = []
        for it in (x, x.long()):
            out.append([len(torch.unique(it)), len(torch.unique(it, return_counts=True)[1]), len(torch.unique_consecutive(it))])
            out[-1].append(len(torch.unique(it, return_inverse=True)[0]))
        out.append([len(x.nonzero()), torch.unique(x, return_counts=True)[1].tolist()])
        print(json.dumps(out))
        """
    )
    assert ran.values == [[3, 3, 3, 3], [3, 3, 3, 3], [3, [2, 1, 2]]]


def test_how_often_each_number_is_there_follows_from_how_many_there_are(phantom):
    ran = phantom(
        """
        import json, torch
        table = torch.cat([torch.tensor([[0.0], [0.0], [1.0], [2.0], [2.0], [2.0]]), torch.ones(6, 5)], 1).cuda()
        unknown = torch.randn(72, 3, device="cuda") @ torch.randn(3, 2, device="cuda")
        counts = [torch.unique(it, return_counts=True)[1] for it in (table[:, 0], table[:, 0].double(), unknown[:, 0])]
        print(json.dumps([[int(it.max()), int(it.sum()), len(it)] for it in counts]))
        """
    )
    assert ran.values == [[3, 6, 3], [3, 6, 3], [1, 72, 72]]


def test_non_maximum_suppression_keeps_what_it_is_given(phantom):
    ran = phantom(
        """
        import json, torch, torchvision
        boxes = torch.rand(300, 4, device="cuda")
        print(json.dumps([len(torchvision.ops.nms(boxes, boxes[:, 0], 0.5)), len(torchvision.ops.nms(boxes[:0], boxes[:0, 0], 0.5))]))
        """
    )
    assert ran.values == [300, 0]
    assert any("nms()" in it for it in ran.approximated)


def test_what_nobody_knows_is_no_nan_and_finite(phantom):
    """Programs check that, and stop if it does not hold: a distribution its parameters, a loop its loss."""
    ran = phantom(
        """
        import json, torch
        from torch.distributions import Categorical, Normal
        w = torch.ones(4, 4, device="cuda")
        out = []
        for n in (1, 2, 300):
            mean = (w @ w).repeat(100, 100)[:n, :1]
            loss = mean.sum()
            Normal(mean, mean.exp()).rsample()
            Categorical(logits=mean).sample()
            out.append([bool(torch.isfinite(loss)), bool(torch.isnan(mean).any()), bool(torch.isfinite(mean).all()), bool(torch.isinf(loss))])
        known = torch.tensor([1.0, float("nan")], device="cuda")
        out.append([bool(torch.isnan(known).any()), bool(torch.isfinite(known).all())])
        print(json.dumps(out))
        """
    )
    assert ran.values == 3 * [[True, False, True, False]] + [[True, False]]


@pytest.mark.matrix(1)
@pytest.mark.parametrize("foreach", [True, False])
def test_an_optimizer_counts_its_steps_on_the_device(phantom, foreach):
    """With a default device, Adam's counts are there, and it divides by 1 - beta ** count."""
    ran = phantom(
        f"""
        import json, torch
        torch.set_default_device("cuda")
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
        adam = torch.optim.Adam(model.parameters(), foreach={foreach})
        for _ in range(3):
            adam.zero_grad()
            model(torch.randn(2, 8)).sum().backward()
            adam.step()
            torch.zeros(8, 8).scatter_add_(0, torch.randn(2, 8).argmax(0, keepdim=True), torch.ones(1, 8))
        print(json.dumps([it["step"].item() for it in adam.state.values()]))
        """
    )
    assert ran.values == [3.0, 3.0, 3.0, 3.0]


def test_random_numbers_are_those_of_a_real_device(phantom):
    ran = phantom(
        """
        import json, torch
        torch.manual_seed(0)
        drawn = torch.rand(4, device="cuda").tolist()  # As PyTorch prints them on any GPU.
        shape = (64, 512)
        chances = torch.rand(shape, device="cuda")
        masked = chances < 0.15
        each = torch.bernoulli(torch.full(shape, 0.15, device="cuda")).bool()
        tokens = torch.randint(5, 1000, shape, device="cuda")
        lengths = torch.randint(10, 100, (64,), device="cuda")
        kept = tokens[masked & (tokens > 100)]
        steps = torch.zeros(64, device="cuda")
        torch._foreach_add_([steps], 1.0)
        stale = steps.tolist()  # Written in place by a kernel that nobody follows.
        sums = [len(masked.nonzero()), int(masked.sum()), int(each.sum()), len(kept), lengths.max().item()]
        print(json.dumps([drawn, sums, tokens.min().item(), tokens.max().item(), stale[:2]]))
        """
    )
    drawn, sums, least, largest, stale = ran.values
    assert [round(it, 4) for it in drawn] == [0.399, 0.5167, 0.0249, 0.9401]
    found, summed, each, kept, longest = sums
    assert found == summed, sums
    expected = 0.15 * 64 * 512
    assert abs(found - expected) < 300 and abs(each - expected) < 300, sums
    assert 0.85 * found < kept < 0.95 * found and 90 < longest < 100, sums
    assert (least, largest) == (5, 999)
    assert stale == [0, 0], "unknown, not what it was before"


def test_numbers_of_a_normal_distribution_are_those_of_a_real_device(phantom):
    ran = phantom(
        """
        import json, torch
        torch.manual_seed(0)
        drawn = torch.randn(5, device="cuda").tolist()  # As PyTorch prints them on any GPU.
        many = torch.empty(100_000, device="cuda").normal_(0.5, 2.0)
        half = torch.randn(1000, device="cuda", dtype=torch.bfloat16), torch.rand(1000, device="cuda", dtype=torch.float16)
        chosen = torch.randn(300, 300, device="cuda")
        sums = [(many > 0.5).sum().item(), (half[0] > 0).sum().item(), (half[1] > 0.3).sum().item(), len(chosen[chosen > 1])]
        print(json.dumps([drawn, many.mean().item(), sums]))
        """
    )
    drawn, mean, sums = ran.values
    assert [round(it, 4) for it in drawn] == [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209]
    assert mean == pytest.approx(0.5, abs=0.02)
    assert sums == pytest.approx([50_000, 500, 700, 0.1587 * 90_000], rel=0.06)
    assert ran.report["unknown_reads"]["count"] == 0


def test_checks_of_values_hold(plimsoll):
    """A policy's samples, and a spectrum that is turned back into sound: PyTorch reads in C++ whether the numbers are allowed. Losses of which a script
    reads it: `any()` of one element is the same copy as `all()` of it."""
    script = plimsoll.script(
        """
import torch
scale = torch.empty(8, 3, device="cuda").log_normal_()
print(torch.distributions.Normal(torch.zeros_like(scale), scale).sample().shape, torch.normal(0.0, scale).shape)
window = torch.hann_window(400, device="cuda")
spectrum = torch.stft(torch.empty(2, 16_000, device="cuda").log_normal_(), 400, 160, window=window, return_complex=True)
print(torch.istft(spectrum, 400, 160, window=window).shape)
loss = torch.empty((), device="cuda").log_normal_()
if torch.isnan(loss).any():
    raise ValueError("a loss that is no number")
if torch.any(loss < 0):
    raise RuntimeError("a negative loss")
assert torch.any(loss > 0) and (loss > 0).all()
assert not (loss < 0).any()
"""
    )
    ran = plimsoll.predict(script, options=["--gpu", "h200"])
    assert ran.code == 0, ran
    assert "torch.Size([2, 16000])" in ran.stdout


@pytest.mark.soak
def test_checks_of_values_hold_after_many_reads(plimsoll):
    """The agent looks at so many reads only, and at each check of them all."""
    script = plimsoll.script(
        """
import torch
scale = torch.empty(8, device="cuda").log_normal_()
for _ in range(50_100):
    scale.tolist()
print(torch.distributions.Normal(scale, scale).sample().shape)
"""
    )
    ran = plimsoll.predict(script, options=["--gpu", "h200"])
    assert ran.code == 0, ran
    assert "torch.Size([8])" in ran.stdout


def test_a_search_that_ends_when_all_have_ended_goes_on_to_its_limit(phantom):
    ran = phantom(
        """
        import json, torch
        head = torch.empty(8, 50, device="cuda").log_normal_()
        ended = torch.zeros(4, dtype=torch.bool, device="cuda")
        for step in range(20):
            scores, flat = (torch.empty(4, 8, device="cuda").log_normal_() @ head).view(1, -1).topk(4)
            ended = ended[flat[0] // 50] | (flat[0] % 50 == 2)
            if ended.all():
                break
        print(json.dumps([step]))
        """
    )
    assert ran.values == [19]
    assert "combined with |" in " ".join(ran.approximated)


def test_a_router_drops_what_is_over_an_experts_capacity(phantom):
    ran = phantom(
        """
        import json, torch
        chosen = torch.randn(64, 4, device="cuda").softmax(-1).topk(1, -1)[1].flatten()
        one_hot = torch.nn.functional.one_hot(chosen, 4)
        place = (one_hot.cumsum(0) - 1).gather(1, chosen[:, None]).squeeze(1)
        keep = place < 16
        out = []
        for expert in range(4):
            mine = ((chosen == expert) & keep).nonzero().flatten()
            torch.zeros(64, 8, device="cuda").index_add_(0, mine, torch.randn(len(mine), 8, device="cuda"))
            out.append([len(mine), int((chosen == expert).sum())])
        print(json.dumps(out))
        """
    )
    assert all(kept == min(16, all_of_it) and 4 < kept for kept, all_of_it in ran.values), ran.values
    assert sum(it[1] for it in ran.values) == 64


@pytest.mark.soak
def test_a_loop_that_waits_for_what_nobody_knows_ends_and_it_is_said(phantom):
    ran = phantom(
        """
        import json, torch
        weights = torch.eye(64, device="cuda")
        draw = lambda: torch.mv(weights, weights[0])
        done, found, best, most, turns = draw() > 2, 0, 0, 0, 0
        while not done.any():
            done = draw() > 0.9
        while (draw() > 0.1).all():
            limit = torch.tensor(0.1, device="cuda")  # The same copy in every turn is nothing new.
        while found < 8:
            found += draw()[draw() > 0.9].numel()
        while best < 3:
            best = max(best, draw().sum().item())
        while most < 3:
            most = max(most, (draw() > 0.9).sum().item())
        while True:
            turns += 1
            if (draw().sum() > 40).item():
                break
        print(json.dumps([found, most, turns]))
        """
    )
    assert ran.values == [64, 4, 4096]
    assert any("the script waits for a value" in it for it in ran.approximated)


@pytest.mark.soak
def test_rejection_sampling_ends(phantom):
    ran = phantom(
        """
        import json, torch
        one = torch.ones(16, device="cuda")
        print(json.dumps([torch.distributions.VonMises(one, one).sample().shape.numel()]))
        """
    )
    assert ran.values == [16]


def test_the_kth_value_and_the_median_of_known_numbers_are_found(phantom):
    ran = phantom(
        """
        import json, torch
        x = torch.tensor([[3.0, 1.0, 2.0, 9.0], [5.0, 7.0, 6.0, 8.0]]).cuda()
        kth, middle = x.kthvalue(3), x.median(1)
        column = x.kthvalue(2, dim=0)[0]
        unknown = torch.nn.Linear(8, 1000).cuda()(torch.randn(4, 8, device="cuda")).kthvalue(7)[1]
        print(json.dumps([kth[0].tolist(), kth[1].tolist(), middle[0].tolist(), column.tolist(), len(set(unknown.tolist()))]))
        """
    )
    kth, places, middle, column, different = ran.values
    assert (kth, places, middle) == ([3.0, 7.0], [0, 1], [2.0, 6.0])
    assert column == [5.0, 7.0, 6.0, 9.0] or not any(column), "numbers that lie apart are unknown at most"
    assert different > 1, "the place of an unknown number is drawn"


def test_multinomial_draws_nothing_that_the_script_set_to_zero(phantom):
    ran = phantom(
        """
        import json, torch
        chances = torch.nn.Linear(8, 1000).cuda()(torch.randn(4, 8, device="cuda")).softmax(-1)
        chances[:, :500] = 0
        print(json.dumps([torch.multinomial(chances, n).flatten().tolist() for n in (1, 4)]))
        """
    )
    for drawn in ran.values:
        assert min(drawn) >= 500 and len(set(drawn)) > 1, drawn


def test_multinomial_with_replacement_draws_by_what_is_known_of_the_chances(phantom):
    ran = phantom(
        """
        import json, torch
        def draw(chances, n):
            return torch.multinomial(chances, n, replacement=True).flatten().tolist()
        unknown = torch.nn.Linear(8, 1000).cuda()(torch.randn(4, 8, device="cuda")).softmax(-1)
        unknown[:, :500] = 0
        few = torch.nn.Linear(8, 6).cuda()(torch.randn(1, 8, device="cuda")).softmax(-1)[0]
        halves = few.half()
        few[0] = halves[0] = 0
        out = [draw(unknown, 300), draw(few, 200), draw(halves, 200), draw(torch.tensor([0.0, 1.0, 0.0, 9.0]).cuda(), 500)]
        # Negatives that a set of positives must not have.
        seen, found = {0}, set()
        for _ in range(50):
            found |= set(draw(few, 2)) - seen
        print(json.dumps(out + [sorted(found)]))
        """
    )
    many, few, halves, weighted, found = ran.values
    assert min(many) >= 500 and len(set(many)) > 200, many
    assert set(few) == set(halves) == {1, 2, 3, 4, 5}
    assert set(weighted) == {1, 3} and 20 < weighted.count(1) < 90, weighted.count(1)
    assert found == [1, 2, 3, 4, 5]


def test_a_loop_that_ends_by_a_limit_reaches_it(phantom):
    """A generation asks at each token whether all have ended, a training whether its loss is still finite."""
    ran = phantom(
        """
        import json, torch
        turns, unfinished = [0, 0], torch.ones(4, dtype=torch.bool, device="cuda")
        token = torch.zeros(4, dtype=torch.int64, device="cuda")
        for i in range(2000):
            token = torch.multinomial(torch.rand(4, 100, device="cuda"), 1)[:, 0]
            unfinished = unfinished & ~(token == 7)
            turns[0] += 1
            if not unfinished.any() and i < 0 or (~unfinished).all() and i < 0:
                break
        weights = torch.eye(64, device="cuda")
        for i in range(40_000):
            if i % 1000 == 0:
                x = torch.full((64,), float(i)).cuda()
            assert not torch.mv(weights, x).sum().isnan()
            turns[1] += 1
        print(json.dumps(turns))
        """
    )
    assert ran.values == [2000, 40_000]
    assert not any("the script waits for a value" in it for it in ran.approximated)


def test_what_is_small_and_new_is_known_beside_much_that_is_large(phantom):
    """DDP reads the shapes of a model back that it has just copied there, beside all of the model's weights."""
    ran = phantom(
        """
        import json, torch
        def reads():
            return torch.arange(500).cuda()[7].item()
        kept, out = [torch.arange(500).cuda()], [reads()]
        for make in (lambda: torch.zeros(4608 * 768), lambda: torch.randn(230_000), lambda: torch.randn(768), lambda: torch.zeros(4608 * 768)):
            kept += [make().cuda() for _ in range(40)]
            out.append(reads())
        print(json.dumps(out + [kept[0][9].item()]))
        """
    )
    assert ran.values == 5 * [7] + [9]
    [forgot] = [it for it in ran.approximated if "plimsoll forgot" in it]
    assert "the largest 13.5 MiB" in forgot


def test_choices_that_are_made_anew_until_they_stay_stay(phantom):
    """k-means goes on until no assignment changes; whether all words end a text is another question."""
    ran = phantom(
        """
        import json, torch
        x, centres = torch.randn(512, 16, device="cuda"), torch.randn(5, 16, device="cuda")
        turns, before = 0, None
        while True:
            turns += 1
            which = torch.cdist(x, centres).argmin(1)
            if before is not None and torch.equal(which, before):
                break
            before = which
            for i in range(5):
                members = x[which == i]
                centres[i] = members.mean(0) if len(members) else x[i]
        ended = bool((which == 3).all()), bool((which == torch.full_like(which, 3)).all())
        print(json.dumps([turns, ended, int(which.max())]))
        """
    )
    assert ran.values == [2, [False, False], 4]
    assert any("plimsoll answered that they are equal" in it for it in ran.approximated)


def test_no_row_of_unknown_numbers_is_nothing_but_padding(phantom):
    """Vision-language models leave out the images that only fill a batch: `(images == 0).sum(...) != size`."""
    ran = phantom(
        """
        import json, torch
        out = []
        for kind in (torch.float32, torch.bfloat16, torch.float64):
            for rows in (6, 1):
                images = torch.ones(rows, 3, 64, 64, device="cuda", dtype=kind) @ torch.ones(64, 64, device="cuda", dtype=kind)
                is_real = (images == 0.0).sum(dim=(-1, -2, -3)) != images[0].numel()
                is_padding = (images == 0.0).sum(dim=(-1, -2, -3)) == images[0].numel()
                out.append([len(images[is_real]), len(images[is_padding])])
        known = torch.tensor([[0.0, 0.0], [0.0, 1.0], [2.0, 3.0]], device="cuda")
        out.append(known[(known == 0).sum(-1) != 2].tolist())
        # Of other numbers nobody knows how many there are.
        out.append(len(images[(images == 1.0).sum(dim=(-1, -2, -3)) != images[0].numel()]))
        print(json.dumps(out))
        """
    )
    assert ran.values == [*3 * [[6, 0], [1, 0]], [[0.0, 1.0], [2.0, 3.0]], 0]

"""What programs compute of pairs and groups of known numbers, and size the next tensor by."""

import pytest


def test_boxes_that_overlap_are_told_from_those_that_do_not(phantom):
    """Non-maximum suppression written by hand."""
    ran = phantom(
        """
        import json, torch
        torch.manual_seed(0)
        centre, side = torch.rand(400, 2) * 400, torch.rand(400, 2) * 80 + 10
        here = torch.cat([centre - side / 2, centre + side / 2], 1)
        def kept(boxes):
            boxes = boxes.clamp(0, 400)
            boxes = boxes[((boxes[:, 2:] - boxes[:, :2]) >= 20).all(1)]
            area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
            low, high = torch.max(boxes[:, None, :2], boxes[None, :, :2]), torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
            overlap = (high - low).clamp(min=0).prod(2)
            iou = overlap / (area[:, None] + area[None] - overlap)
            best, which = iou.fill_diagonal_(0).max(1)
            sides = (boxes[:, 2:] - boxes[:, :2]).prod(1).argsort()
            return [len(boxes[~(iou.triu(diagonal=1) > 0.3).any(0)]), int((best > 0.5).sum()), int(which[0]), int(iou[3].argmax()), int((iou > iou.mean()).sum() / 100), int(sides[0])]
        print(json.dumps([kept(here.cuda()), kept(here)]))
        """
    )
    ours, theirs = ran.values
    assert ours == theirs


def test_points_within_a_radius_are_found(phantom):
    ran = phantom(
        """
        import json, torch
        torch.manual_seed(0)
        out = []
        points = torch.rand(700, 3)
        for p in (points.cuda(), points):
            near = torch.cdist(p, p) < 0.15
            near.fill_diagonal_(False)
            source, target = near.nonzero(as_tuple=True)
            out.append([len(source), int(near.sum(1).max())])
        print(json.dumps(out))
        """
    )
    ours, theirs = ran.values
    assert ours == pytest.approx(theirs, abs=4)


def test_distances_of_thousands_of_points_are_known_where_they_are_read(phantom):
    """They are computed there, and nowhere else."""
    ran = phantom(
        """
        import json, torch
        torch.manual_seed(0)
        out = []
        points = torch.rand(2500, 3)
        for p in (points.cuda(), points):
            far = torch.cdist(p, p)
            p.fill_(0)  # They are of what was there before.
            near = far < 0.15
            out.append([int(near[:400].sum()), int(near[-400:].sum(1).max()), int((far[2000:2010] < 0.3).sum()), int(far[2499].argmax())])
        print(json.dumps(out))
        """
    )
    ours, theirs = ran.values
    assert ours == pytest.approx(theirs, abs=4)


def test_what_is_in_a_set_is_known(phantom):
    ran = phantom(
        """
        import json, torch
        torch.manual_seed(0)
        out = []
        drawn, codes = torch.randint(0, 360_000, (30_000,)), torch.randint(0, 360_000, (9_000,))
        for device in ("cuda", "cpu"):
            here = drawn.to(device)
            fresh = here[~torch.isin(here, codes.to(device))]
            filled = torch.zeros(50, dtype=torch.long, device=device).index_fill_(0, torch.tensor([3, -1], device=device), 7)
            out.append([len(fresh), int(fresh.sum()), filled.tolist()])
        print(json.dumps(out))
        """
    )
    ours, theirs = ran.values
    assert ours == theirs


def test_degrees_and_sizes_of_graphs_are_known(phantom):
    """`scatter_add_` and `index_add_` of ones: how wide a dense batch is, which nodes are left out."""
    ran = phantom(
        """
        import json, torch
        torch.manual_seed(0)
        out = []
        target, batch = torch.randint(0, 3000, (60_000,)), torch.randint(0, 64, (3000,)).sort().values
        for device in ("cuda", "cpu"):
            t, b = target.to(device), batch.to(device)
            ones = torch.ones(len(t), device=device)
            degree = torch.zeros(3000, device=device).scatter_add_(0, t, ones)
            again = torch.zeros(3000, device=device).index_add_(0, t, ones)
            count = torch.zeros(64, dtype=torch.long, device=device).scatter_add_(0, b, torch.ones_like(b))
            few = torch.zeros(5, device=device).index_add_(0, t[:9] % 5, ones[:9])
            last = torch.zeros(64, dtype=torch.long, device=device).scatter_reduce_(0, b, t[:3000], "amax")
            put = torch.zeros(4, 5, dtype=torch.long, device=device).scatter_(1, t[:8].view(4, 2) % 5, t[8:16].view(4, 2))
            unknown = torch.zeros(5, device=device).scatter_add_(0, t[:9] % 5, (torch.ones(9, 9, device=device) @ torch.ones(9, device=device)))
            out.append([int(count.max()), int((degree >= 20).sum()), int((again > degree.mean()).sum()), few.tolist(), last.tolist()[:9], put.tolist()])
        print(json.dumps(out))
        """
    )
    ours, theirs = ran.values
    assert ours == theirs


def test_a_causal_mask_is_known_however_it_is_made(phantom):
    ran = phantom(
        """
        import json, torch
        out = []
        for device in ("cuda", "cpu"):
            mask = torch.ones(700, 700, dtype=torch.bool, device=device).triu_(1)
            floats = torch.triu(torch.full((300, 300), float("-inf"), device=device), diagonal=1)
            low = torch.arange(24, device=device).view(2, 3, 4).tril(-1)
            out.append([bool(mask.any()), int(mask.sum()), bool((floats == 0).all()), int((floats == 0).sum()), low.tolist()])
        print(json.dumps(out))
        """
    )
    ours, theirs = ran.values
    assert ours == theirs


def test_an_expert_for_each_token_is_chosen_evenly(phantom):
    """A router that takes the best one, tokens in the order of their experts, those beyond the capacity left out."""
    ran = phantom(
        """
        import json, torch
        scores = (torch.randn(1000, 64, device="cuda") @ torch.randn(64, 8, device="cuda")).softmax(-1)
        weight, expert = scores.max(-1)
        order = expert.argsort(stable=True)
        count = torch.bincount(expert, minlength=8)
        place = torch.arange(1000, device="cuda") - (count.cumsum(0) - count)[expert[order]]
        kept = order[place < 125]
        word = torch.randn(4, 8, device="cuda") @ torch.randn(8, 50_000, device="cuda")
        labels = torch.arange(8).cuda()[scores.argmax(1)]
        print(json.dumps([count.tolist(), len(kept), word.argmax(1).tolist(), int((labels == 3).sum())]))
        """
    )
    count, kept, word, third = ran.values
    assert sum(count) == 1000 and 80 < min(count) and max(count) < 170, count
    assert kept == sum(min(it, 125) for it in count)
    assert all(781 <= it < 46_875 for it in word), "a word to go on with is none that ends a text"
    assert 80 < third < 170
    assert "evenly spaced" in " ".join(ran.approximated)

"""The matcher and the boxes of `matcher_of_all_pictures.py`."""

import torch
from torch import nn


def corners(boxes):
    x, y, width, height = boxes.unbind(-1)
    return torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1)


def generalized_iou(one, other):
    area_of_one = (one[:, 2] - one[:, 0]) * (one[:, 3] - one[:, 1])
    area_of_other = (other[:, 2] - other[:, 0]) * (other[:, 3] - other[:, 1])
    top_left = torch.max(one[:, None, :2], other[:, :2])
    bottom_right = torch.min(one[:, None, 2:], other[:, 2:])
    size = (bottom_right - top_left).clamp(min=0)
    inner = size[..., 0] * size[..., 1]
    union = area_of_one[:, None] + area_of_other - inner
    hull = torch.max(one[:, None, 2:], other[:, 2:]) - torch.min(one[:, None, :2], other[:, :2])
    hull_area = hull[..., 0] * hull[..., 1]
    return inner / union - (hull_area - union) / hull_area


class Matcher(nn.Module):
    """Which query takes which target: the cheapest one for each."""

    def __init__(self, class_cost=2.0, box_cost=5.0, giou_cost=2.0):
        super().__init__()
        self.class_cost, self.box_cost, self.giou_cost = class_cost, box_cost, giou_cost

    @torch.no_grad()
    def forward(self, outputs, targets):
        n, queries = outputs["logits"].shape[:2]
        scores = outputs["logits"].flatten(0, 1).sigmoid()
        boxes = outputs["boxes"].flatten(0, 1)
        labels = torch.cat([it["labels"] for it in targets])
        wanted = torch.cat([it["boxes"] for it in targets])
        cost = self.box_cost * torch.cdist(boxes, wanted, p=1)
        cost = cost - self.class_cost * scores[:, labels]
        cost = cost - self.giou_cost * generalized_iou(corners(boxes), corners(wanted))
        cost = cost.view(n, queries, -1)
        sizes = [len(it["boxes"]) for it in targets]
        return [part[i].argmin(0) for i, part in enumerate(cost.split(sizes, -1))]


class MatcherOfEach(Matcher):
    """The same, one picture after the other."""

    @torch.no_grad()
    def forward(self, outputs, targets):
        one = lambda i: {name: value[i : i + 1] for name, value in outputs.items()}
        return [super(MatcherOfEach, self).forward(one(i), [it])[0] for i, it in enumerate(targets)]

"""Models whose sizes follow from scores that nobody computes: torchvision's detectors."""

import json

SCRIPT = """
import json, torch, torchvision

torch.manual_seed(0)
model = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=4, min_size=96, max_size=128, box_batch_size_per_image=64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
pooled = []
model.roi_heads.box_head.register_forward_hook(lambda module, args, out: pooled.append(len(args[0])))
pictures = [torch.rand(3, 96, 128).cuda() for _ in range(2)]
targets = [{"boxes": torch.tensor([[10.0, 20.0, 60.0, 70.0]]).cuda(), "labels": torch.tensor([1]).cuda()} for _ in pictures]
for _ in range(3):
    loss = sum(model(pictures, targets).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    found = model(pictures)
outside = torch.nonzero(torch.rand(9, device="cuda") > 0.5)
print(json.dumps([pooled, [len(it["boxes"]) for it in found], len(outside)]))
"""


def test_a_detector_pools_as_many_boxes_as_it_may_sample(plimsoll):
    (plimsoll.folder / "detect.py").write_text(SCRIPT)
    ran = plimsoll.predict("detect.py", options=("--gpu", "rtx3090", "--until-exit"))
    assert ran.code == 0, ran
    (line,) = (it for it in ran.stdout.splitlines() if it.startswith("[["))
    pooled, found, outside = json.loads(line)
    # As many of each picture as may be sampled in training, and as may be proposed (150) in evaluation.
    assert pooled == [128, 128, 128, 300], line
    assert found == [100, 100], line
    assert 0 < outside < 9, "what is drawn at random is known"
    texts = " ".join(it["text"] for it in ran.report["notes"])
    assert "torchvision's detectors" in texts and "nms()" in texts
    assert "agent-failed" not in {it["code"] for it in ran.report["notes"]}, ran.report["notes"]

"""What a program can read back from a device that computes nothing: what it put there, and else zeros."""


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
        out = [b.sum().item(), b[0, :3].tolist(), b.argmax().item(), torch.randn(3, device="cuda").tolist()]
        print(json.dumps(out))
        """
    )
    assert ran.values == [0.0, [0.0, 0.0, 0.0], 0, [0.0, 0.0, 0.0]]
    assert ran.report["unknown_reads"] == {"count": 4, "bytes": 4 + 12 + 8 + 12}


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


def test_what_a_kernel_changes_in_place_keeps_the_value_that_the_program_put_there(phantom):
    """A limit: nobody sees that a kernel writes to x. (A new tensor at the same address is another matter.)"""
    ran = phantom(
        """
        import json, torch
        x = torch.tensor([5.0, 6.0], device="cuda")
        x.add_(1)
        y = x + 1
        print(json.dumps([x.tolist(), y.tolist()]))
        """
    )
    assert ran.values == [[5.0, 6.0], [0.0, 0.0]]


def test_tests_are_answered_with_yes_and_it_is_said(phantom):
    ran = phantom(
        """
        import json, torch
        mask = torch.ones(8, 128, device="cuda").bool()
        out = [bool(mask.all()), bool(mask.sum() == mask.numel()), bool(torch.equal(mask, mask.clone()))]
        print(json.dumps(out))
        """
    )
    assert ran.values == [True, True, True]
    said = " ".join(ran.approximated)
    assert "all() was answered with yes" in said and "== was answered with yes" in said


def test_counts_of_what_nobody_knows_are_zero(phantom):
    ran = phantom(
        """
        import json, torch
        x = torch.randn(64, device="cuda")
        mask = x > 0
        out = [bool(mask.any()), mask.nonzero().shape[0], x[mask].numel(), torch.unique(x).numel() <= 64,
               torch.masked_select(x, mask).numel(), bool((x > 100).any())]
        print(json.dumps(out))
        """
    )
    assert ran.values == [False, 0, 0, True, 0, False]
    assert 4 <= ran.report["unknown_reads"]["count"]


def test_the_report_names_what_was_guessed(plimsoll):
    script = plimsoll.script(
        """
import torch
net = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(9):
    x = torch.randn(8, 64, device="cuda")
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
    assert "all() was answered with yes" in notes["approximated"], notes

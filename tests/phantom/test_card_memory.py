"""Memory: PyTorch's own allocator above, a card with a capacity below."""

import pytest

GIB = 1 << 30
GRANULE = 2 << 20
KEPT = 9024 << 10
"""What the driver keeps of an H200 for no process."""


def test_the_card_is_the_one_of_the_catalogue(phantom):
    ran = phantom(
        """
        import json, torch
        p = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info()
        x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
        print(json.dumps([torch.cuda.get_device_name(), p.total_memory, total, total - free, [p.major, p.minor],
            p.multi_processor_count, free - torch.cuda.mem_get_info()[0], torch.cuda.is_bf16_supported(), p.L2_cache_size]))
        """
    )
    assert ran.values == ["NVIDIA H200", 150109880320, 150109880320, KEPT + (518 << 20), [9, 0], 132, 100 << 20, True, 60 << 20]


def test_the_context_grows_as_on_a_card(phantom):
    """What an H200 has beside PyTorch's allocator, by NVML: `bench/results/raw/driver`."""
    ran = phantom(
        """
        import json, torch
        def context():
            free, total = torch.cuda.mem_get_info()
            return (total - free - 9024 * 1024 - torch.cuda.memory_reserved()) >> 20
        out = [context()]
        x = torch.randn(512, 512, device="cuda") + 1
        out.append(context())
        x @ x
        out.append(context())
        torch.nn.functional.conv2d(torch.randn(2, 16, 32, 32, device="cuda"), torch.randn(16, 16, 3, 3, device="cuda"))
        out.append(context())
        print(json.dumps(out))
        """
    )
    assert ran.values == [518, 610, 676, 686]


def test_a_kernel_that_needs_much_local_memory_takes_it_for_each_thread(phantom):
    """5,136 bytes, by its machine code, of which 1,024 are there for every kernel, for 132 x 2,048 threads: `bench/results/raw/driver/local-h200.txt`."""
    ran = phantom(
        """
        import json, torch
        x = torch.rand(1000, device="cuda") + 1
        free = torch.cuda.mem_get_info()[0]
        torch.special.gammainc(x, x)
        first = free - torch.cuda.mem_get_info()[0]
        torch.special.gammainc(x, x)
        print(json.dumps([first >> 20, free - torch.cuda.mem_get_info()[0] - first]))
        """
    )
    assert ran.values == [1062, 0]


@pytest.mark.parametrize(("kind", "kernels", "graphs", "mib"), [("add", 100, 50, 16), ("foreach", 100, 50, 56), ("mm", 5, 500, 60)])
def test_graphs_take_what_the_driver_takes_for_their_kernels_parameters(phantom, kind, kernels, graphs, mib):
    """As an H100 and an H200 did (`bench/results/raw/driver/graphs-*.jsonl.gz`): a kernel of `add` has 40 bytes, one of `foreach` 4 KiB, a product 1,720."""
    ran = phantom(
        f"""
        import torch
        x = torch.zeros(1024, device="cuda")
        xs = [torch.zeros(16, device="cuda") for _ in range(60)]
        a, b, c = (torch.zeros(512, 512, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        work = dict(add=lambda: x.add_(1.0), foreach=lambda: torch._foreach_add_(xs, 1.0), mm=lambda: torch.mm(a, b, out=c))["{kind}"]
        stream, pool, held = torch.cuda.Stream(), torch.cuda.graph_pool_handle(), []
        work()
        with torch.cuda.stream(stream):
            work()
        def context():
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            return (total - free - torch.cuda.memory_reserved()) >> 20
        before = context()
        for _ in range({graphs}):
            held.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(held[-1], pool=pool, stream=stream):
                for _ in range({kernels}):
                    work()
        print(context() - before)
        """
    )
    assert ran.values == mib


def test_running_out_is_pytorch_s_own_error_with_the_card_s_capacity(phantom):
    ran = phantom(
        """
        import json, torch
        kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(7)]
        try:
            kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            print(json.dumps([str(error), torch.cuda.memory_allocated()]))
        """,
        "--gpu", "rtx4060-8g",
    )
    text, allocated = ran.values
    assert allocated == 7 * GIB
    assert text.startswith("CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 7.62 GiB")
    # 90 MiB of context beside the tensors: no kernel was launched, and no library has a handle.
    assert "of which 544" in text, text
    assert "this process has 7.09 GiB memory in use" in text, text


def test_memory_can_be_another_amount(phantom):
    ran = phantom(
        """
        import torch
        print(torch.cuda.mem_get_info()[1])
        """,
        "--gpu", "rtx4090", "--memory", "20GiB",
    )
    assert ran.values == 20 * GIB


def test_a_full_card_gives_cached_blocks_back_first(phantom):
    ran = phantom(
        """
        import json, torch
        a = torch.empty(5 << 30, dtype=torch.uint8, device="cuda")
        del a
        reserved = torch.cuda.memory_reserved()
        b = torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
        stats = torch.cuda.memory_stats()
        print(json.dumps([reserved, torch.cuda.memory_reserved(), stats["num_alloc_retries"], stats["num_ooms"]]))
        """,
        "--gpu", "rtx4060-8g",
    )
    assert ran.values == [5 * GIB, 6 * GIB, 1, 0]


def test_a_fraction_of_the_card(phantom):
    ran = phantom(
        """
        import json, torch
        torch.cuda.set_per_process_memory_fraction(0.1)
        try:
            torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            print(json.dumps("13.98 GiB allowed" in str(error)))
        """
    )
    assert ran.values is True


def test_capacity_counts_granules(phantom):
    """A segment of the small pool is one granule of 2 MiB; a large one is rounded up to granules."""
    ran = phantom(
        """
        import json, torch
        free = lambda: torch.cuda.mem_get_info()[0]
        out, before = [], free()
        for size in (1, (10 << 20) + 1, (33 << 20) + 1):
            x = torch.empty(size, dtype=torch.uint8, device="cuda")
            out.append(before - free())
            del x
            torch.cuda.empty_cache()
            assert free() == before
        print(json.dumps(out))
        """
    )
    assert ran.values == [2 << 20, 12 << 20, 34 << 20]


# Of an rtx4060-8g, before a kernel is launched.
BARE_CONTEXT = 90 << 20
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_expandable_segments_grow_and_are_unmapped(phantom):
    ran = phantom(
        """
        import json, torch
        free = lambda: torch.cuda.mem_get_info()[0]
        before = free()
        blocks, addresses = [], []
        for i in range(5):
            blocks.append(torch.empty(30 << 20, dtype=torch.uint8, device="cuda"))
            addresses.append(blocks[-1].data_ptr())
        segments = torch.cuda.memory_snapshot()
        out = [len(segments), segments[0]["is_expandable"], addresses[-1] - addresses[0], before - free(), torch.cuda.memory_reserved()]
        del blocks[2]
        torch.cuda.empty_cache()
        out += [before - free(), torch.cuda.memory_reserved()]
        blocks.clear()
        torch.cuda.empty_cache()
        out += [before - free(), torch.cuda.memory_reserved()]
        print(json.dumps(out))
        """,
        environment=EXPANDABLE,
    )
    granules = 160 << 20  # 150 MiB in granules of 20 MiB, the size that torch maps large blocks in.
    n_segments, is_expandable, span, used, reserved, used_2, reserved_2, used_3, reserved_3 = ran.values
    assert (n_segments, is_expandable, span) == (1, True, 120 << 20)
    assert used == reserved == granules
    assert used_2 == reserved_2 < reserved
    assert used_3 == reserved_3 == 0


def test_expandable_segments_run_out_at_capacity(phantom):
    ran = phantom(
        """
        import json, torch
        kept = []
        try:
            while True:
                kept.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            free, total = torch.cuda.mem_get_info()
            print(json.dumps([len(kept), free, total, torch.cuda.memory_reserved()]))
        """,
        "--gpu", "rtx4060-8g",
        environment=EXPANDABLE,
    )
    n, free, total, reserved = ran.values
    assert n == (total - BARE_CONTEXT) // (100 << 20)
    assert free + reserved + BARE_CONTEXT == total and free < 100 << 20


@pytest.mark.parametrize("environment", [{}, EXPANDABLE], ids=["default", "expandable"])
def test_eight_threads(phantom, environment):
    ran = phantom(
        """
        import json, random, threading, torch
        torch.empty(1, device="cuda")
        failures = []
        def work(seed):
            try:
                r, kept = random.Random(seed), []
                with torch.cuda.stream(torch.cuda.Stream()):
                    for i in range(400):
                        if kept and r.random() < 0.5:
                            kept.pop(r.randrange(len(kept)))
                        else:
                            x = torch.tensor([seed * 1000 + i], device="cuda")
                            kept.append((seed * 1000 + i, x, torch.empty(r.choice([100, 1 << 20, 3 << 20, 30 << 20]), dtype=torch.uint8, device="cuda")))
                        for number, x, _ in kept[:2]:
                            if x.item() != number:
                                failures.append((number, x.item()))
            except BaseException as error:
                failures.append(repr(error))
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        torch.cuda.empty_cache()
        print(json.dumps([failures[:3], torch.cuda.memory_allocated()]))
        """,
        environment=environment,
    )
    assert ran.values == [[], 0]


def test_pinned_memory(phantom):
    ran = phantom(
        """
        import json, torch
        a = torch.randn(1000).pin_memory()
        b = torch.empty(10 << 20, pin_memory=True)
        out = [a.is_pinned(), b.is_pinned(), torch.randn(3).is_pinned(), bool((a.cuda().cpu() == a).all())]
        b.fill_(2)
        out.append(b.cuda(non_blocking=True).shape[0])
        print(json.dumps(out))
        """
    )
    assert ran.values == [True, True, False, True, 10 << 20]


def test_graph_capture_has_a_pool_of_its_own(phantom):
    ran = phantom(
        """
        import json, torch
        net = torch.nn.Linear(256, 256).cuda()
        x = torch.randn(32, 256, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3): net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            y = net(x)
        graph.replay()
        torch.cuda.synchronize()
        pools = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()}
        kept = torch.cuda.memory_reserved()
        del y, graph
        torch.cuda.empty_cache()
        print(json.dumps([len(pools), torch.cuda.memory_reserved() < kept]))
        """
    )
    assert ran.values == [2, True]


def test_a_memory_pool(phantom):
    ran = phantom(
        """
        import json, torch
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
        print(json.dumps(sum(s["total_size"] for s in pool.snapshot())))
        """
    )
    assert ran.values == 20 << 20

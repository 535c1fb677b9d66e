"""The allocator's backends and tools: expandable segments, cudaMallocAsync, pools, graphs, snapshots."""

import pytest

pytestmark = pytest.mark.slow

BOOKS = """
    import torch
    base = torch.cuda.mem_get_info()[0]
    def taken(): return base - torch.cuda.mem_get_info()[0]
    x = [torch.empty(100 << 20, dtype=torch.uint8, device="cuda") for _ in range(5)]
    assert torch.cuda.memory_allocated() == 500 << 20, torch.cuda.memory_allocated()
    reserved = torch.cuda.memory_reserved()
    assert reserved >= 500 << 20 and taken() == reserved, (taken(), reserved)
    del x[1], x[2]
    assert torch.cuda.memory_allocated() == 300 << 20
    torch.cuda.empty_cache()
    assert taken() == torch.cuda.memory_reserved() <= reserved, (taken(), torch.cuda.memory_reserved())
    assert torch.cuda.max_memory_allocated() == 500 << 20
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == 0
    try:
        torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
        raise SystemExit("no error")
    except torch.OutOfMemoryError:
        pass
"""

GROWS = """
    a = torch.empty(20 << 20, dtype=torch.uint8, device="cuda")   # a segment grows in place
    b = torch.empty(20 << 20, dtype=torch.uint8, device="cuda")
    segments = [s for s in torch.cuda.memory_snapshot() if s["segment_type"] == "large"]
    assert len(segments) == 1 and segments[0]["is_expandable"], segments
"""


@pytest.mark.parametrize(
    "conf", ["", "expandable_segments:True", "backend:cudaMallocAsync", "max_split_size_mb:128"]
)
def test_what_the_allocator_reserves_is_what_the_card_lacks(simcard, conf):
    more = GROWS if conf.startswith("expandable") else ""

    simcard.python(BOOKS + more, env={"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else {})


def test_snapshots_pools_and_graphs(simcard, tmp_path):
    simcard.python(
        """
        import os, pickle, sys, torch
        torch.cuda.memory._record_memory_history()
        keep = torch.nn.Linear(1000, 1000).cuda()
        torch.cuda.memory._dump_snapshot(sys.argv[1])
        dump = pickle.load(open(sys.argv[1], "rb"))
        assert dump["segments"] and any(e["action"] == "alloc" for e in dump["device_traces"][0])
        assert torch.cuda.memory_snapshot()[0]["blocks"]
        torch.cuda.memory_summary()

        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        ids = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()}
        assert len(ids) == 2, ids

        net, x = torch.nn.Linear(256, 256).cuda(), torch.randn(8, 256, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            net(x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.memory_allocated()
        with torch.cuda.graph(graph):
            y = net(x)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() > before
        private = [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == graph.pool()]
        assert private, "no segment of the graph's pool"
        sample = (torch.randn(4, 64, device="cuda"),)
        made = torch.cuda.make_graphed_callables(torch.nn.Linear(64, 64).cuda(), sample)
        made(torch.randn(4, 64, device="cuda")).sum().backward()
        """,
        str(tmp_path / "dump.pickle"),
    )

"""Pools folded from a snapshot: what could be given back is what ``empty_cache`` gives back."""

import hypothesis
import pytest
from hypothesis import strategies as st

from gpumem_tui.agent.autopsy import pools

GIVE_BACK = """
import random, torch
from gpumem_tui.agent.autopsy import pools
random.seed(3)
def reserved(): return torch.cuda.memory_reserved()
streams, held = [torch.cuda.current_stream(), torch.cuda.Stream()], []
for turn in range(25):
    for _ in range(random.randrange(1, 30)):
        with torch.cuda.stream(random.choice(streams)):
            size = random.choice([600, 1 << 19, 3 << 20, 15 << 20, 33 << 20, 70 << 20])
            held.append(torch.empty(random.randrange(1, size), dtype=torch.uint8, device="cuda"))
    random.shuffle(held)
    del held[random.randrange(len(held)):]
    torch.cuda.synchronize()
    found = pools.fold(torch._C._cuda_memorySnapshot((0, 0, False))["segments"], 0)
    assert sum(pool["total_bytes"] for pool in found) == reserved()
    before = reserved()
    torch.cuda.empty_cache()
    given = before - reserved()
    assert sum(pool["releasable_bytes"] for pool in found) == given, (turn, found, given)
    print(given)
"""


@pytest.mark.slow
@pytest.mark.simcard
@pytest.mark.parametrize("expandable", [False, True])
def test_what_is_releasable_is_what_empty_cache_gives_back_to_the_byte(simcard, expandable):
    done = simcard.python(GIVE_BACK, env={"PYTORCH_ALLOC_CONF": f"expandable_segments:{expandable}"})

    assert sum(map(int, done.stdout.split())) > 1 << 28


sizes = st.integers(1, 64).map(lambda n: n << 19)
segments = st.builds(
    lambda blocks, device, stream, kind, private, expandable: {
        "device": device,
        "stream": stream,
        "segment_type": kind,
        "segment_pool_id": private,
        "is_expandable": expandable,
        "total_size": sum(size for size, _ in blocks),
        "blocks": [{"size": size, "state": state} for size, state in blocks],
    },
    st.lists(
        st.tuples(sizes, st.sampled_from(["inactive", "active_allocated", "active_pending_free"])), min_size=1
    ),
    st.integers(0, 1),
    st.sampled_from([0, 7]),
    st.sampled_from(["small", "large"]),
    st.sampled_from([(0, 0), (1, 0)]),
    st.booleans(),
)


@hypothesis.given(st.lists(segments, max_size=8))
def test_figures_of_pools_add_up_for_any_snapshot(snapshot):
    found = pools.fold(snapshot, 0)
    here = [segment for segment in snapshot if segment["device"] == 0]

    assert sum(p["total_bytes"] for p in found) == sum(s["total_size"] for s in here)
    assert sum(p["segments"] for p in found) == len(here)
    for pool in found:
        assert pool["total_bytes"] == pool["allocated_bytes"] + pool["idle_bytes"]
        assert pool["idle_bytes"] == pool["releasable_bytes"] + pool["stuck_bytes"]
        assert 0 <= pool["releasable_bytes"] <= pool["idle_bytes"]
        assert pool["largest_idle_bytes"] <= pool["idle_bytes"]

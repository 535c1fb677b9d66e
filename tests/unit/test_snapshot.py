"""A snapshot of the allocator: read in every version's shape, its fragmentation, and its map."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.fragmentation import holes_for, pools_of, request_of
from gpumem_tui.analysis.memorymap import memory_map
from gpumem_tui.analysis.snapshot import Block, Segment, Use, read_snapshot
from gpumem_tui.errors import BadInput
from gpumem_tui.units import GIB, MIB


def plain(total, *blocks, **more):
    """A segment as PyTorch 2.14 writes it; blocks as (size, state)."""
    return {
        "device": 0,
        "address": 0x7000000000,
        "total_size": total,
        "allocated_size": sum(size for size, state in blocks if state == "active_allocated"),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {"size": size, "requested_size": size, "state": state, "frames": []} for size, state in blocks
        ],
    } | more


LIVE, IDLE, PENDING = "active_allocated", "inactive", "active_pending_free"


def segment(total, *blocks, **more):
    return read_snapshot([plain(total, *blocks, **more)]).segments[0]


# --- shapes of versions -------------------------------------------------------------------------


@pytest.mark.parametrize("pending", ["active_pending_free", "active_awaiting_free"])
def test_a_snapshot_of_today_is_read(pending):
    read = read_snapshot(
        {
            "segments": [
                plain(4 * MIB, (MIB, LIVE), (MIB, pending), (2 * MIB, IDLE), segment_pool_id=(1, 0))
            ],
            "device_traces": [
                [{"action": "alloc", "size": 5}, {"action": "oom", "size": 7, "device_free": 3}]
            ],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "a:b", "expandable_segments": True},
        }
    )

    assert [b.use for b in read.segments[0].blocks] == [Use.LIVE, Use.PENDING, Use.IDLE]
    assert read.segments[0].pool == "private 1,0"
    assert [(f.requested_bytes, f.free_bytes) for f in read.failed] == [(7, 3)]
    assert (read.expandable_segments, read.settings) == (True, "a:b")


def test_a_snapshot_of_2_0_has_blocks_without_address_and_no_pools():
    read = read_snapshot(
        {
            "segments": [
                {
                    "device": 1,
                    "address": 4096,
                    "total_size": 2 * MIB,
                    "allocated_size": MIB,
                    "active_size": MIB,
                    "stream": 0,
                    "segment_type": "small",
                    "blocks": [
                        {
                            "size": MIB,
                            "state": LIVE,
                            "history": [{"addr": 4096, "frames": [], "real_size": 9}],
                        },
                        {"size": MIB, "state": IDLE},
                    ],
                }
            ],
            "device_traces": [],
        }
    )

    assert read.devices() == [1]
    assert read.segments[0].pool == "small"
    assert read.segments[0].blocks[0] == Block(MIB, Use.LIVE, None)
    assert read.expandable_segments is None


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        7,
        "segments",
        {},
        {"segments": 5},
        {"segments": [5]},
        [plain(-1)],
        [plain(1 << 60)],
        [plain(True)],
        [plain(MIB, (2 * MIB, LIVE))],
        [plain(MIB, (MIB, "melted"))],
        [plain(MIB) | {"blocks": "abc"}],
        [plain(MIB) | {"blocks": [3]}],
    ],
)
def test_what_is_no_snapshot_is_refused_in_one_line(wrong):
    with pytest.raises(BadInput) as refused:
        read_snapshot(wrong)

    assert "\n" not in str(refused.value)


# --- fragmentation ------------------------------------------------------------------------------


def test_idle_is_stuck_beside_a_live_block_and_releasable_alone():
    pools = pools_of(
        [
            segment(20 * MIB, (5 * MIB, LIVE), (9 * MIB, IDLE), (6 * MIB, LIVE)),
            segment(30 * MIB, (30 * MIB, IDLE)),
        ]
    )
    (pool,) = pools

    assert (pool.idle_bytes, pool.releasable_bytes, pool.stuck_bytes) == (39 * MIB, 30 * MIB, 9 * MIB)
    assert (pool.largest_idle_bytes, pool.allocated_bytes, pool.total_bytes) == (30 * MIB, 11 * MIB, 50 * MIB)


def test_a_request_is_served_by_its_own_size_class_only():
    pools = pools_of(
        [
            segment(64 * MIB, (8 * MIB, LIVE), (56 * MIB, IDLE)),
            segment(2 * MIB, (MIB, LIVE), (MIB, IDLE), segment_type="small"),
            segment(40 * MIB, (40 * MIB, IDLE), segment_pool_id=(0, 1)),
        ]
    )
    holes = holes_for(pools, 20 * MIB)

    assert (holes.largest_bytes, holes.idle_bytes) == (56 * MIB, 56 * MIB)
    assert (holes.elsewhere_bytes, holes.private_idle_bytes) == (41 * MIB, 40 * MIB)
    assert holes_for(pools, 2 * MIB).largest_bytes == MIB


def test_segments_that_expand_in_another_stream_are_on_for_all():
    pools = pools_of([segment(40 * MIB, (19 * MIB, LIVE), (21 * MIB, IDLE), is_expandable=True, stream=7)])

    assert holes_for(pools, 64 * MIB, 0).expandable


def test_expandable_segments_give_back_whole_pages_only():
    (pool,) = pools_of(
        [
            segment(
                100 * MIB,
                (10 * MIB, LIVE),
                (45 * MIB, IDLE),
                (26 * MIB, LIVE),
                (19 * MIB, IDLE),
                is_expandable=True,
            )
        ]
    )

    assert pool.releasable_bytes == 40 * MIB
    assert pool.stuck_bytes == 24 * MIB


@pytest.mark.parametrize(
    ("asked", "least", "large"),
    [(2 * MIB, 1, False), (20 * MIB, MIB + 1, True), (64 * MIB, 62 * MIB + 1, True)],
)
def test_the_request_in_the_message_stands_for_a_range_of_tensors(asked, least, large):
    request = request_of(asked)

    assert (request.least_bytes, request.large) == (least, large)


# --- the map ------------------------------------------------------------------------------------

uses = st.sampled_from(Use)
blocks = st.lists(st.tuples(st.integers(512, 64 * MIB), uses), min_size=1, max_size=30)
segments = st.lists(
    st.builds(
        lambda parts, tail, stream, large, private, expandable, address: Segment(
            device=0,
            address=address,
            total_bytes=sum(size for size, _ in parts) + tail,
            stream=stream,
            large=large,
            private=private,
            expandable=expandable,
            blocks=tuple(Block(size, use) for size, use in parts),
        ),
        blocks,
        st.integers(0, MIB),
        st.integers(0, 2),
        st.booleans(),
        st.sampled_from([None, (1, 0)]),
        st.booleans(),
        st.integers(0, 1 << 40),
    ),
    max_size=12,
)


@given(segments=segments, width=st.integers(1, 100), rows=st.integers(1, 30))
def test_the_map_has_every_byte_once_and_keeps_to_its_rows(segments, width, rows):
    drawn = memory_map(segments, 0, width=width, rows=rows)
    cells = [cell for strip in drawn.strips for row in strip.rows for cell in row]

    assert sum(cell.total_bytes for cell in cells) == sum(s.total_bytes for s in segments)
    assert sum(cell.live_bytes for cell in cells) == sum(
        b.size_bytes for s in segments for b in s.blocks if b.use is Use.LIVE
    )
    assert all(cell.total_bytes <= drawn.cell_bytes for cell in cells)
    assert all(len(row) <= width for strip in drawn.strips for row in strip.rows)
    assert sum(cell.starts for cell in cells) == len(segments)
    assert drawn.rows <= max(rows, len(drawn.strips))


@given(segments=segments)
def test_every_byte_of_a_pool_is_allocated_idle_or_in_no_block(segments):
    for pool in pools_of(segments):
        assert 0 <= pool.allocated_bytes + pool.idle_bytes <= pool.total_bytes
        assert pool.largest_idle_bytes <= pool.idle_bytes
        assert 0 <= pool.stuck_bytes == pool.idle_bytes - pool.releasable_bytes


def test_lengths_compare_between_pools():
    drawn = memory_map(
        [segment(2 * GIB, (2 * GIB, LIVE)), segment(GIB, (GIB, IDLE), stream=7)], 0, width=64, rows=4
    )
    long, short = drawn.strips

    assert sum(map(len, long.rows)) == 2 * sum(map(len, short.rows))

"""Kernels that take time, and programs that end well."""

import pytest

pytestmark = pytest.mark.slow


def test_a_kernel_costs_time_on_its_stream_and_not_on_the_host(simcard):
    simcard.python(
        """
        import time, torch
        x = torch.randn(8, 64, device="cuda")
        def step():
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            t = time.perf_counter()
            a.record()
            for _ in range(500): x.add_(1)
            b.record()
            launched = time.perf_counter() - t
            done = b.query()
            torch.cuda.synchronize()
            return launched, time.perf_counter() - t, a.elapsed_time(b) / 1e3, done
        step()
        tries = [step() for _ in range(5)]
        assert all(whole >= .1 and abs(measured - .1) < .05 for _, whole, measured, _ in tries), tries
        # The host runs ahead.
        assert any(launched < .05 and not done for launched, _, _, done in tries), tries

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(500): x.add_(1)
        y = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        y.record_stream(side)                           # not free before the side stream is done
        address = y.data_ptr()
        del y
        assert torch.empty(64 << 20, dtype=torch.uint8, device="cuda").data_ptr() != address
        torch.cuda.synchronize()
        """,
        settings={"kernel_us": 200},
    )


def test_a_program_may_end_right_after_a_backward_pass(simcard):
    code = """
        import os, torch
        net = torch.nn.Linear(1024, 1024).cuda()
        net(torch.randn(8, 1024, device="cuda")).sum().backward()
    """

    for _ in range(2):  # without the cure about every third run aborts
        pair = [simcard.start_python(code) for _ in range(2)]
        ends = [(process.communicate(timeout=60), process.returncode) for process in pair]
        assert [code for _, code in ends] == [0, 0], ends

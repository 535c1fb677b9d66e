"""PyTorch's own out-of-memory error on the simulated card, with what other processes hold."""

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.simcard(devices=["8GiB"])
def test_the_message_is_pytorchs_own_and_names_who_holds_what(simcard):
    holder = simcard.hold("3GiB")

    simcard.python(f"""
        import torch
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *a: seen.append(a))
        x = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        try:
            y = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
            raise SystemExit("no error")
        except torch.OutOfMemoryError as e:
            text = str(e)
        assert "Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 7.90 GiB" in text, text
        assert "Process {holder.pid} has 3.29 GiB memory in use" in text, text
        assert "Including non-PyTorch memory, this process has 2.29 GiB memory in use" in text, text
        assert "2.00 GiB is allocated by PyTorch" in text, text
        assert len(seen) == 1 and seen[0][1] == 4 << 30, seen
        assert torch.cuda.memory_stats()["num_ooms"] == 1
        del x
        z = torch.empty(3 << 30, dtype=torch.uint8, device="cuda")   # it goes on after that
        del z
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(0.1)
        try:
            torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
            raise SystemExit("no error")
        except torch.OutOfMemoryError as e:
            assert "allowed" in str(e), e
    """)


@pytest.mark.simcard(devices=["8GiB"])
def test_a_card_that_is_full_has_no_room_for_a_context(simcard):
    simcard.hold("7600MiB")

    done = simcard.python("import torch; torch.empty(1, device='cuda')", exits=1)

    assert "out of memory" in done.stderr

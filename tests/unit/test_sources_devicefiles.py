"""Who has device files open, below a /proc of the test's own."""

import os

import pytest

from gpumem_tui.sources.devicefiles import read_open_files


@pytest.fixture
def proc(tmp_path):
    def make(pid, *targets):
        folder = tmp_path / str(pid) / "fd"
        folder.mkdir(parents=True)
        for number, target in enumerate(targets):
            (folder / str(number)).symlink_to(target)
        return folder

    make.root = tmp_path
    return make


def test_pids_are_told_by_the_number_of_the_card_s_file(proc):
    proc(10, "/dev/nvidia0", "/dev/nvidia0", "/dev/nvidiactl", "/dev/null")
    proc(11, "/dev/nvidia0", "/dev/nvidia12", "/dev/nvidia-uvm")
    proc(12, "socket:[77]", "/dev/nvidia-caps/nvidia-cap1", "/home/dev/nvidia3")
    (proc.root / "self").mkdir()
    found = read_open_files(proc.root)

    assert found.by_minor == {0: (10, 11), 12: (11,)}
    assert found.unreadable == 0


def test_we_ourselves_are_left_out(proc):
    proc(os.getpid(), "/dev/nvidia0")

    assert read_open_files(proc.root).by_minor == {}


def test_a_process_that_ends_meanwhile_is_nobody(proc):
    (proc.root / "13").mkdir()

    assert read_open_files(proc.root).unreadable == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_what_may_not_be_looked_at_is_counted(proc):
    proc(14, "/dev/nvidia0").chmod(0)

    assert read_open_files(proc.root).unreadable == 1

"""Host memory and cgroups, from files as kernels write them."""

import os

import pytest

from gpumem_tui.sources.host import Cgroup, find_cgroup, read_host


def write(path, **files):
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)


@pytest.fixture
def proc(tmp_path):
    """A /proc of one process (pid 7) with the given cgroup path; its mount is in ``tmp_path``."""

    def make(cgroup, mount):
        write(tmp_path / "proc/7", cgroup=cgroup)
        write(tmp_path / "proc/self", mountinfo=mount)
        return tmp_path / "proc"

    return make


def test_host_memory_is_that_of_meminfo():
    host = read_host(None)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    assert host.total_bytes == pages
    assert 0 < host.available_bytes <= host.total_bytes
    assert host.swap_used_bytes >= 0
    assert (host.cgroup_bytes, host.cgroup_limit_bytes, host.cgroup_oom_kills) == (None, None, None)


def test_what_meminfo_lacks_is_missing_and_not_zero(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 1024 kB\n")
    host = read_host(None, tmp_path / "meminfo")

    assert (host.total_bytes, host.available_bytes, host.swap_used_bytes) == (1 << 20, None, None)


def test_the_tightest_limit_above_governs_and_brings_its_own_usage(tmp_path, proc):
    mount = tmp_path / "cgroup"
    write(mount, memory__current="900", memory__max="max")
    write(mount / "job", memory__current="500", memory__max="1000")
    write(mount / "job/step", memory__current="300", memory__max="max", memory__events="low 0\noom_kill 2\n")
    found = find_cgroup(7, proc("0::/job/step\n", f"30 25 0:26 / {mount} rw - cgroup2 cgroup2 rw\n"))
    host = read_host(found)

    assert found == Cgroup(2, mount / "job/step", mount)
    assert (host.cgroup_bytes, host.cgroup_limit_bytes, host.cgroup_oom_kills) == (500, 1000, 2)


def test_without_any_limit_there_is_usage_and_no_limit(tmp_path, proc):
    mount = tmp_path / "cgroup"
    write(mount / "job", memory__current="300", memory__max="max")
    found = find_cgroup(7, proc("0::/job\n", f"30 25 0:26 / {mount} rw - cgroup2 cgroup2 rw\n"))
    host = read_host(found)

    assert (host.cgroup_bytes, host.cgroup_limit_bytes, host.cgroup_oom_kills) == (300, None, None)


def test_version_1_is_read_too_and_its_huge_number_is_no_limit(tmp_path, proc):
    mount = tmp_path / "memory"
    write(mount, memory__usage_in_bytes="9", memory__limit_in_bytes="9223372036854771712")
    write(
        mount / "job",
        memory__usage_in_bytes="5",
        memory__limit_in_bytes="64",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    )
    found = find_cgroup(
        7, proc("9:memory:/job\n0::/\n", f"31 25 0:27 / {mount} rw - cgroup cgroup rw,memory\n")
    )
    host = read_host(found)

    assert (host.cgroup_bytes, host.cgroup_limit_bytes, host.cgroup_oom_kills) == (5, 64, 1)


def test_a_container_that_sees_only_its_own_part_of_the_tree_finds_itself(tmp_path, proc):
    mount = tmp_path / "cgroup"
    write(mount, memory__current="7", memory__max="8")
    line = f"30 25 0:26 /docker/abc {mount} rw - cgroup2 cgroup2 rw\n"

    assert find_cgroup(7, proc("0::/docker/abc\n", line)) == Cgroup(2, mount, mount)
    assert find_cgroup(7, proc("0::/docker/other\n", line)) is None
    assert find_cgroup(7, proc("0::/../other\n", line.replace("/docker/abc", "/"))) is None


def test_a_process_that_is_gone_has_no_cgroup(tmp_path):
    assert find_cgroup(8, tmp_path) is None

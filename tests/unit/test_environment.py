"""The environment report: what follows from which facts, and how the facts are read."""

import json
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumem_tui.analysis.environment import Verdict, report
from gpumem_tui.records import Reason
from gpumem_tui.records.environment import CardFacts, DriverFacts, Surroundings, TorchFacts
from gpumem_tui.sources import cards
from gpumem_tui.sources.cards import read_cards
from gpumem_tui.sources.surroundings import read_surroundings
from gpumem_tui.sources.torchfacts import ask_torch
from gpumem_tui.views import envtext

GIB = 1 << 30

HERE = Surroundings(
    host="here", system="Linux", kernel="6.1", machine="x86_64", container=None, pid_namespace="initial",
    wsl=False, mps=None, device_files=(("/dev/nvidia0", True),), memory_bytes=64 * GIB,
    cgroup_limit_bytes=None, root=True, hidden_processes=False, variables=(("CUDA_VISIBLE_DEVICES", "1"),),
)  # fmt: skip
CARD = CardFacts(
    index=0, parent=None, name="A card", uuid="aaaa", pci="00000000:11:00.0", total_bytes=24 * GIB,
    reserved_bytes=GIB, memory_version=2, processes=2, figures=2, capability="9.0", mig=False,
)  # fmt: skip
DRIVER = DriverFacts("580.1", "13.580", "13.0", "580.1", None, None, (CARD,))
TORCH = TorchFacts("/bin/python", "3.11.1", "2.14.1", "/torch", "13.0", None, "native", None, 1, False)
NO_DRIVER = DriverFacts(None, None, None, None, Reason.NO_DRIVER, "NVML Shared Library Not Found")


def verdicts(made):
    return {ability.what: ability.verdict for ability in made.abilities}


def why(made, what):
    return next(ability.why for ability in made.abilities if ability.what == what)


def test_without_proc_nobody_is_known_by_name():
    made = report(replace(HERE, pid_namespace=None), DRIVER, TORCH)

    assert verdicts(made)["who others are"] is Verdict.NO
    assert verdicts(made)["which process is ours"] is Verdict.UNKNOWN


def test_where_everything_is_there_nothing_is_missing_and_all_can_be_measured():
    made = report(HERE, DRIVER, TORCH)

    assert made.missing == ()
    assert set(verdicts(made).values()) == {Verdict.YES}


def test_without_a_gpu_and_without_pytorch_both_are_named():
    made = report(
        HERE, NO_DRIVER, TorchFacts("/bin/python", error="ModuleNotFoundError: No module named 'torch'")
    )

    assert made.missing == (
        "no GPU: no driver: NVML Shared Library Not Found",
        "no PyTorch: /bin/python: ModuleNotFoundError: No module named 'torch'",
    )
    assert verdicts(made)["memory of the cards"] is Verdict.NO


def test_a_cpu_only_build_is_no_pytorch_for_a_gpu():
    made = report(HERE, DRIVER, replace(TORCH, cuda=None, version="2.14.1+cpu"))

    assert "CPU-only build" in made.missing[0]
    assert verdicts(made)["allocated, cached, phases"] is Verdict.NO


def test_a_mismatch_after_an_update_names_the_kernel_module():
    driver = DriverFacts(None, None, None, "570.2", Reason.DRIVER_MISMATCH, "version mismatch")
    made = report(HERE, driver, TORCH)

    assert made.missing == (
        "no GPU: driver and library versions differ: version mismatch "
        "(the kernel module is 570.2; reboot, or reload it)",
    )


def test_rocm_is_called_hip_and_has_no_system_side():
    hip = replace(TORCH, cuda=None, hip="7.0")
    amd = replace(HERE, device_files=(("/dev/kfd", True),))
    made = report(amd, NO_DRIVER, hip)
    text = envtext.render(made, "1", "/home")

    assert made.missing == ()
    assert "HIP 7.0" in text and "CUDA 7.0" not in text
    assert "not available: ROCm" in text
    assert json.loads(envtext.render_json(made, "1", "/home"))["torch"]["backend"] == "hip"
    assert why(made, "memory of the cards").startswith("ROCm")


@pytest.mark.parametrize(
    ("change", "what", "verdict"),
    [
        ({"memory_version": 1}, "driver-reserved apart", Verdict.NO),
        ({"memory_reason": "not supported", "total_bytes": None}, "memory of the cards", Verdict.NO),
        ({"processes_reason": "no permission", "processes": None}, "memory of each process", Verdict.NO),
        ({"processes_reason": "no permission", "processes": 2}, "memory of each process", Verdict.PARTLY),
        ({"processes": 2, "figures": 0}, "memory of each process", Verdict.NO),
        ({"processes": 2, "figures": 1}, "memory of each process", Verdict.PARTLY),
        ({"processes": 0, "figures": 0}, "memory of each process", Verdict.UNKNOWN),
        ({"load_reason": "not supported"}, "utilisation, temperature, power, clocks", Verdict.NO),
    ],
)
def test_what_a_card_does_not_tell_cannot_be_measured(change, what, verdict):
    made = report(HERE, replace(DRIVER, cards=(replace(CARD, **change),)), TORCH)

    assert verdicts(made)[what] is verdict


def test_one_card_of_two_that_fails_is_partly_and_named():
    lost = replace(CARD, index=1, memory_reason="lost: GPU is lost")
    made = report(HERE, replace(DRIVER, cards=(CARD, lost)), TORCH)

    assert verdicts(made)["memory of the cards"] is Verdict.PARTLY
    assert why(made, "memory of the cards") == "GPU 1: lost: GPU is lost"


def test_in_a_container_ours_are_recognised_by_evidence():
    made = report(replace(HERE, pid_namespace="own"), DRIVER, TORCH)

    assert verdicts(made)["which process is ours"] is Verdict.PARTLY
    assert "evidence" in why(made, "which process is ours")


def test_a_missing_reading_is_a_dash_with_its_reason_in_the_text():
    text = envtext.render(report(HERE, NO_DRIVER, TORCH), "1", "/home")

    assert "NVML           — (no driver: NVML Shared Library Not Found)" in text
    assert "0.00 GiB" not in text


def test_where_no_variable_is_set_the_report_names_those_it_looked_for():
    here = replace(HERE, variables=(("CUDA_VISIBLE_DEVICES", None), ("LD_LIBRARY_PATH", None)))

    text = envtext.render(report(here, DRIVER, TORCH), "1", "/home")

    assert "variables\n  none  of CUDA_VISIBLE_DEVICES, LD_LIBRARY_PATH\n" in text


def test_on_a_narrow_terminal_values_are_folded_below_their_beginning():
    made = report(HERE, NO_DRIVER, TORCH)
    folded = envtext.render(made, "1", "/home", 80)

    assert max(map(len, folded.splitlines())) <= 80
    assert folded.split() == envtext.render(made, "1", "/home").split()


# --- how facts are read ---------------------------------------------------------------------------


def test_traces_of_containers_wsl_and_device_files_are_read_below_a_root(tmp_path):
    for name in (
        "dev/nvidia0",
        "dev/nvidia12",
        "dev/nvidiactl",
        "dev/nvidia-caps/x",
        "dev/dxg",
        ".dockerenv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532999]")
    (tmp_path / "proc/self/mountinfo").write_text("21 1 0:20 / /proc rw,nosuid - proc proc rw,hidepid=2\n")
    here = read_surroundings(tmp_path, {"CUDA_VISIBLE_DEVICES": "3\x1b[2J"})

    assert [path for path, _ in here.device_files] == [
        "/dev/nvidia0", "/dev/nvidia12", "/dev/nvidiactl", "/dev/dxg",
    ]  # fmt: skip
    assert (here.container, here.pid_namespace, here.wsl) == ("Docker (/.dockerenv)", "own", True)
    assert here.hidden_processes is True
    assert dict(here.variables)["CUDA_VISIBLE_DEVICES"] == "3\ufffd[2J"


def test_nothing_tells_of_a_container_where_nothing_is(tmp_path):
    here = read_surroundings(tmp_path, {})

    assert (here.container, here.pid_namespace, here.device_files) == (None, None, ())


def test_the_kernel_module_has_a_version_where_the_library_is_missing(tmp_path):
    folder = tmp_path / "proc/driver/nvidia"
    folder.mkdir(parents=True)
    (folder / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (root)\n"
    )

    facts = read_cards(tmp_path / "libnvidia-ml.so.1", tmp_path)

    assert (facts.module_version, facts.reason) == ("580.65.06", Reason.NO_DRIVER)


def test_a_driver_that_hangs_is_given_up_and_said(tmp_path, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(cards, "_ask", lambda *_: gate.wait())
    facts = read_cards(root=tmp_path, deadline_s=0.2)
    gate.set()

    assert (facts.reason, facts.cards) == (Reason.STALE, ())
    assert "has not returned" in facts.word


@pytest.fixture
def torch_of(tmp_path, monkeypatch):
    """Makes an interpreter whose torch is what the test writes."""

    def make(source):
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/__init__.py").write_text(textwrap.dedent(source))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return Path(sys.executable)

    return make


def test_a_hip_build_is_asked_like_any_other(torch_of):
    facts = ask_torch(
        torch_of("""
        import types
        print("noise of an import")
        __version__ = "2.9.0+rocm7.0"
        version = types.SimpleNamespace(cuda=None, hip="7.0.1")
        cuda = types.SimpleNamespace(
            device_count=lambda: 4, is_initialized=lambda: False,
            memory=types.SimpleNamespace(get_allocator_backend=lambda: "native"),
        )
    """)
    )

    assert (facts.backend, facts.version, facts.devices) == ("hip", "2.9.0+rocm7.0", 4)
    assert (facts.allocator, facts.initialized, facts.error) == ("native", False, None)


def test_beside_a_driver_that_hangs_devices_are_not_counted_and_all_else_is_told(torch_of):
    python = torch_of("""
        import time, types
        __version__ = "2.9.0"
        version = types.SimpleNamespace(cuda="13.0", hip=None)
        cuda = types.SimpleNamespace(
            device_count=lambda: time.sleep(60), is_initialized=lambda: False,
            memory=types.SimpleNamespace(get_allocator_backend=lambda: "native"),
        )
    """)
    facts = ask_torch(python, patience_s=30, count=False)

    assert (facts.version, facts.allocator, facts.devices) == ("2.9.0", "native", None)
    assert (facts.initialized, facts.error) == (False, None)


def test_an_import_that_fails_is_an_error_and_no_traceback(torch_of):
    facts = ask_torch(torch_of('raise OSError("libcudart.so.13: cannot open\\nmore")'))

    assert facts.version is None
    assert facts.error == "OSError: libcudart.so.13: cannot open"


def test_an_import_that_ends_the_interpreter_is_an_error(torch_of):
    python = torch_of("import os; os._exit(7)")
    ended = ask_torch(python)

    assert ended.error == "it ended with code 7 and no answer"


@pytest.mark.parametrize("answer", ["[1, 2]", "{broken", '{"devices": "many"}'])
def test_an_interpreter_whose_answer_makes_no_sense_is_an_error(tmp_path, answer):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho 'gpumem-tui-torch:{answer}'\n")
    python.chmod(0o755)
    facts = ask_torch(python)

    assert facts.version is None
    assert facts.error.startswith("its answer makes no sense: ")


def test_a_variable_that_is_no_text_is_told_as_safe_text(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "\x1b[31m\udcff")

    assert dict(read_surroundings().variables)["CUDA_VISIBLE_DEVICES"] == "\ufffd[31m\ufffd"


def test_an_interpreter_that_hangs_is_given_up(torch_of):
    facts = ask_torch(torch_of("import time; time.sleep(60)"), patience_s=0.5)

    assert facts.error == "it has not answered within 0 s"


def test_what_is_no_interpreter_is_an_error(tmp_path):
    assert ask_torch(tmp_path / "python").error == "it does not run: No such file or directory"

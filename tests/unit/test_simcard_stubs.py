"""The C text that stands for functions nobody wrote, and the values that settings take."""

import time

import pytest

from gpumem_tui.errors import BadInput
from gpumem_tui.simcard import parse_value, stubs


@pytest.mark.parametrize(
    ("library", "name", "parameters", "expected"),
    [
        ("cublas", "cublasSgemm_v2", None, "sc_handle_kernel(handle) ? 13 : 0"),
        ("cusolver", "cusolverDnCreateParams", None, "calloc(1, 512)"),
        (
            "cusolver",
            "cusolverDnSgetrf_bufferSize",
            ["cusolverDnHandle_t h", "int *lwork"],
            "*(int *)a1 = 0;",
        ),
        ("cufft", "cufftMakePlanMany64", ["cufftHandle p", "size_t *work"], "*(long *)a1 = 0;"),
        ("curand", "curandDestroyGenerator", None, "free(p)"),
        ("cudart", "cudaGetMipmappedArrayLevel", None, "return 801;"),
        ("cudart", "cudaProfilerStart", None, "return 0;"),
        ("cublas", "cublasLtGetStatusString", None, 'return "simulated";'),
        ("nvml", "nvmlDeviceGetEncoderStats", None, "return 3;"),
    ],
)
def test_a_stub_never_claims_what_it_has_not_done(library, name, parameters, expected):
    assert expected in stubs.stub(library, name, parameters)


def test_prototypes_are_read_over_comments_and_lines(tmp_path):
    header = tmp_path / "x.h"
    header.write_text("int cuOne(int a, /* a, b */\n   size_t *n); // cuTwo(void);\nvoid other(int);\n")

    assert stubs.prototypes([header]) == {"cuOne": ["int a", "size_t *n"]}


def test_version_script_keeps_each_tag_and_leaves_strange_names_out():
    script = stubs.version_script(
        {"cudaMalloc": "libcudart.so.13", "_ZN1aE": "libcudart.so.13", "plain": None}
    )

    assert script == "libcudart.so.13 { global: cudaMalloc; };\n"


def test_values_of_settings():
    assert parse_value("500MiB") == 500 << 20
    assert parse_value("GPU_IS_LOST") == parse_value("nvml_error_gpu_is_lost") == 15
    assert parse_value("-1") == -1
    assert parse_value("0") == 0
    assert 4 < parse_value("+5") - time.time() < 6
    with pytest.raises(BadInput):
        parse_value("much")

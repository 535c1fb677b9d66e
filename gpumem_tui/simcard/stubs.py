"""C text for the functions of NVIDIA's libraries that ``src/`` does not define.

Each library that PyTorch loads exports hundreds of names. Those without a definition
of ours become stubs here: a kernel on the stream of its handle, an answer of 0 to a
question for a size, "not supported" where success would be a lie, success elsewhere.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

Names = Mapping[str, str | None]
"""Function → version tag of the real library."""

_KERNELS = {  # names that are a kernel on the stream of the handle, their first argument
    "cublas": re.compile(
        r"cublas\w*?(gemm|gemv|ger|syr|trsm|trmm|dot|axpy|scal|nrm2|copy|swap|symm|"
        r"hemm|getr|geqrf|gels|matinv|asum|Ex)",
        re.IGNORECASE,
    ),
    "cudnn": re.compile(
        r"cudnn(?!Get|Set|Find|Create|Destroy)\w*(Forward|Backward|Transform|AddTensor|Training)"
    ),
}
_SIZES = re.compile(r"size|workspace|makeplan|estimate", re.IGNORECASE)
_NO_ANSWER = re.compile(r"Get|Create|Import|Export|Query|Open")
_TEXT = re.compile(r"String|ErrorName")
_NAME = re.compile(r"(__)?[a-z]\w+")

_HEAD = """#include <simcard.h>
#include <stdlib.h>
#include <string.h>
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"
"""

HOST_DEFINES = """/* Stands in for crt/host_defines.h where the headers come without it. */
#pragma once
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDAAPI
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __no_return__ __attribute__((noreturn))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __location__(a)
#define __specialization_static static
"""


def prototypes(headers: Iterable[Path]) -> dict[str, list[str]]:
    """Read function → parameters, as written, from C headers."""
    found: dict[str, list[str]] = {}
    for header in headers:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", header.read_text(errors="replace"), flags=re.DOTALL)
        for name, parameters in re.findall(r"\b(cu\w+)\s*\(([^(){};]*)\)\s*;", text):
            found[name] = [" ".join(p.split()) for p in parameters.split(",")]
    return found


def driver_names(header: Path) -> tuple[dict[str, str | None], dict[str, str]]:
    """Read the functions of cuda.h, and what its macros rename (``cuMemAlloc`` → ``cuMemAlloc_v2``)."""
    text = header.read_text(errors="replace")
    aliases = dict(re.findall(r"^#\s*define\s+(cu[A-Z]\w+)\s+(cu[A-Z]\w+_v\d+)\s*$", text, re.M))
    aliases.update(
        re.findall(r"^#\s*define\s+(cu[A-Z]\w+)\s+__CUDA_API_PT(?:DS|SZ)\((cu\w+)\)\s*$", text, re.M)
    )
    names = set(re.findall(r"^CUresult CUDAAPI\s+(cu[A-Z]\w+)\s*\(", text, re.M))
    return dict.fromkeys(names | set(aliases.values())), aliases


def alias_table(aliases: Mapping[str, str]) -> str:
    """Write the function ``sc_driver_alias`` that src/cuda_driver.c asks."""
    table = ",\n".join(f'    {{"{old}", "{new}"}}' for old, new in sorted(aliases.items()))
    return (
        f"static const char *const aliases[][2] = {{\n{table}\n}};\n"
        "const char *sc_driver_alias(const char *name) {\n"
        "    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)\n"
        "        if (!strcmp(name, aliases[i][0])) return aliases[i][1];\n"
        "    return name;\n}\n"
    )


def nvml_names(pynvml: Path) -> dict[str, str | None]:
    """Read what nvidia-ml-py may look up; the real library has it all."""
    names = re.findall(r"_nvmlGetFunctionPointer\(['\"](nvml\w+)['\"]\)", pynvml.read_text(errors="replace"))
    return dict.fromkeys(names)


def _size_answer(name: str, parameters: list[str]) -> str:
    """Write a function that answers each question for a size with 0."""
    arguments, answers = [], []
    for i, parameter in enumerate(parameters):
        number = re.match(r"(const )?(float|double|cuComplex|cuDoubleComplex)\b[^*]*$", parameter)
        kind = "long" if not number else "float" if number[2] == "float" else "double"
        arguments.append(f"{kind} a{i}")
        if re.match(r"(size_t|int64_t|long long( int)?)\s*\*", parameter):
            answers.append(f"if (a{i}) *(long *)a{i} = 0;")
        elif re.match(r"int\s*\*", parameter):
            answers.append(f"if (a{i}) *(int *)a{i} = 0;")
    unused = "".join(f"(void)a{i};" for i in range(len(parameters)))
    return f"API int {name}({', '.join(arguments)}) {{ {unused} {' '.join(answers)} return 0; }}"


def stub(library: str, name: str, parameters: list[str] | None) -> str:
    """Write the C text of one function; ``parameters`` where a header tells them."""
    if _TEXT.search(name):
        return f'API const char *{name}(void) {{ return "simulated"; }}'
    if parameters and parameters != ["void"] and _SIZES.search(name):
        return _size_answer(name, parameters)
    if library == "cufft" and name == "cufftCreate":
        return f"API int {name}(int *plan) {{ *plan = 1; return 0; }}"
    if library in ("cudnn", "cusolver", "cusparse", "curand"):
        if re.search(r"Create(?!.*Version)", name):
            return f"API int {name}(void **out) {{ return (*out = calloc(1, 512)) ? 0 : 3; }}"
        if "Destroy" in name:
            return f"API int {name}(void *p) {{ free(p); return 0; }}"
    if library in _KERNELS and _KERNELS[library].match(name):
        return f"API int {name}(void *handle) {{ return sc_handle_kernel(handle) ? 13 : 0; }}"
    if library == "nvml":
        return f"API int {name}(void) {{ return 3; }}"  # not supported
    refuses = library in ("cudart", "cuda") and _NO_ANSWER.search(name)
    return f"API int {name}(void) {{ return {801 if refuses else 0}; }}"


def source(
    library: str, names: Names, have: Iterable[str], parameters: Mapping[str, list[str]], extra: str = ""
) -> str:
    """Write a C file with a stub for each of ``names`` that we do not already ``have``."""
    missing = sorted(n for n in set(names).difference(have) if _NAME.fullmatch(n))
    lines = [stub(library, n, parameters.get(n)) for n in missing]
    return _HEAD + "\n".join(lines) + "\n" + extra


def version_script(names: Names) -> str:
    """Write a linker script that gives each name the version tag of the real library; empty without tags."""
    tags: dict[str, list[str]] = {}
    for name, tag in names.items():
        if tag and _NAME.fullmatch(name):
            tags.setdefault(tag, []).append(name)
    return "".join(f"{tag} {{ global: {'; '.join(members)}; }};\n" for tag, members in tags.items())

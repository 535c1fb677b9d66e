"""Arguments, variables and folders of bytes that are no UTF-8: the run is as without us, and is recorded."""

import json
import os
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys
told = sys.argv[1], os.environ["PYTORCH_ALLOC_CONF"], os.getcwd()
sys.stdout.buffer.write(b"|".join(map(os.fsencode, told)))
"""
ODD = os.fsdecode(b"a\xff\xc3\xa9")


def test_a_run_of_odd_bytes_is_run_and_recorded(gpumem):
    gpumem.folder = gpumem.folder / ODD
    gpumem.folder.mkdir()
    done = gpumem.run([sys.executable, "-c", SCRIPT, ODD], env={"PYTORCH_ALLOC_CONF": ODD})
    read = json.loads(gpumem("report", "--json").stdout)

    assert done.stderr == b""
    assert done.stdout == b"|".join(map(os.fsencode, (ODD, ODD, gpumem.folder)))
    assert read["run"]["command"][-1] == "a\ufffdé"


@pytest.mark.simcard
def test_a_rank_with_an_odd_argument_is_recorded_too(gpumem, simcard_libraries):
    code = 'import torch; torch.zeros(1 << 20, device="cuda"); raise ValueError("\\udcff\\U0001f600")'
    done = gpumem("run", "--simulate", "4GiB", "--", sys.executable, "-c", code, ODD, exits=1)
    state = gpumem.recording().read()

    assert b"ValueError" in done.stderr
    assert len(state.ranks) == 1
    assert "ValueError: \ufffd😀" in state.failures[-1].headline

"""The phase in which a failure happened, as far as the names in its traceback tell.

Reads the frames of Python, pytest, rich and Jupyter tracebacks. A traceback that
names no phase gives none; nothing is guessed from the size or the moment.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumem_tui.analysis.oomtext.clean import readable


class Frame(NamedTuple):
    """One frame: file, line number as printed, function, and the source line where it is shown."""

    file: str
    number: str
    function: str
    code: str

    def shown(self) -> str:
        """``train.py:41 in evaluate``."""
        where = f"{self.file.replace(chr(92), '/').rpartition('/')[2]}:{self.number}"
        return readable(f"{where} in {self.function}" if self.function else where, 100)


class Told(NamedTuple):
    """What a traceback tells."""

    phase: str | None = None
    phases: tuple[str, ...] = ()
    frame: str | None = None
    user_frame: str | None = None
    first_optimizer_step: bool = False


_FRAMES = (
    re.compile(r'\s*File "(?P<file>[^"]{1,300})", line (?P<number>\d{1,7}), in (?P<function>[\w<>.]{1,100})'),
    re.compile(r"\s*File (?P<file>\S{1,300}?):(?P<number>\d{1,7}),? in (?P<function>[\w<>.]{1,100})"),
    re.compile(
        r"\s*(?P<file>Cell In ?\[\d{1,6}\]), line (?P<number>\d{1,7})(?:, in (?P<function>[\w<>.]{1,100}))?"
    ),
    re.compile(r"\s*(?P<file>\S{1,300}?\.py|<ipython-input-[\w-]{1,60}>) in (?P<function>[\w<>.]{1,100})\("),
    re.compile(
        r"\s*(?P<file>[^\s:]{1,300}\.py):(?P<number>\d{1,7})(?::| in) ?(?:in )?(?P<function>[\w<>.]{0,100})"
    ),
)
_START = re.compile(r"Traceback \(most recent call last\)|Traceback \(innermost last\)")
_CHAINED = re.compile(r"During handling of the above|The above exception was the direct cause")
_LIBRARY = re.compile(
    r"site-packages|dist-packages|/lib/python3|[/\\]torch[/\\]|importlib|<frozen|[/\\]lib[/\\]runpy"
)

_RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    # file, function and code joined by a tab; the first rule that fits a frame names it
    ("optimizer", re.compile(
        r"torch/optim/[^\t]*\t(?:step|_init_group|adamw?|sgd|_?(?:multi|single)_tensor_\w+|_default_to_fused\w*)\t"
        r"|\t(?:optimizer_step|_optimizer_step)\t"
        r"|(?:optimi[sz]er|optim|opt|scaler)\w*\.step\(")),
    ("backward", re.compile(
        r"torch/autograd/[^\t]*\t(?:backward|grad|_engine_run_backward|apply)\t|\.backward\(")),
    ("save", re.compile(
        r"\t(?:save|_save|save_checkpoint|_save_checkpoint|save_pretrained|save_model|async_save|_save_state_dict)\t"
        r"|torch\.save\(|\.save_(?:checkpoint|pretrained|model)\(")),
    ("load", re.compile(
        r"\t(?:load_state_dict|_load_state_dict|from_pretrained|_load_pretrained_model|load_checkpoint|load_model"
        r"|load_weights|_load_weights|get_model|restore|_rebuild_tensor\w*|restore_location|_cuda_deserialize)\t"
        r"|torch/nn/modules/module\.py\t(?:to|cuda|_apply|convert)\t"
        r"|torch\.load\(|\.load_state_dict\(|from_pretrained\("
        r"|(?:model|net|module|pipe|pipeline)\w*\.(?:to|cuda|half|float|bfloat16)\(")),
    ("eval", re.compile(
        r"\t(?:eval|evaluat|validat|predict|test_step|test_loop|inference|prediction_)\w*\t|\t\w+_(?:eval|evaluation|validation|predict)\t"
        r"|\b(?:evaluate|validate|validation_step|prediction_step)\(")),
    ("graph capture", re.compile(r"\t(?:capture\w*|capture_begin|_capture\w*|make_graphed_callables)\t")),
    ("generate", re.compile(
        r"\t(?:generate|_sample|_beam_search|_greedy_search|greedy_search|sample|_decode|_prefill"
        r"|execute_model|profile_run|_dummy_run|determine_available_memory)\t")),
    ("collective", re.compile(
        r"\t(?:all_reduce|all_gather\w*|reduce_scatter\w*|broadcast\w*|all_to_all\w*|barrier)\t")),
    ("forward", re.compile(r"\t(?:forward|_call_impl|_wrapped_call_impl)\t")),
)  # fmt: skip
_CONTEXT = ("save", "eval", "generate", "graph capture", "load")
"""Phases in which a forward is theirs; the outermost of them is the answer."""


_CODE = 300
"""So many characters of a source line are looked at."""
REACH = 8
"""A message further than so many lines behind its last frame is not that traceback's."""


def may_be_frame(line: str) -> bool:
    """A quick look: whether a line could be a frame at all."""
    line = line[:_CODE]
    return ".py" in line or 'File "' in line or "Cell In" in line or "File " in line or "<ipython" in line


def frames_of(lines: Sequence[str]) -> list[Frame]:
    """Frames of the traceback that ends in the last of these lines, outermost first."""
    start = 0
    for at in range(len(lines) - 1, -1, -1):
        if _START.search(lines[at]):
            start = at
            break
        if _CHAINED.search(lines[at]):
            start = at + 1
            break
    found: list[Frame] = []
    last = -REACH
    for at in range(start, len(lines)):
        if not may_be_frame(lines[at]):
            continue
        for pattern in _FRAMES:
            if match := pattern.match(lines[at]):
                parts = match.groupdict()
                code = lines[at + 1][:_CODE].strip() if at + 1 < len(lines) else ""
                found.append(Frame(parts["file"], parts.get("number") or "?", parts["function"] or "", code))
                last = at
                break
    return found if len(lines) - last <= REACH else []


def tell(frames: Iterable[Frame]) -> Told:
    """The phases that frames name, outermost first."""
    named: list[tuple[str, Frame]] = []
    user: Frame | None = None
    first_step = False
    for frame in frames:
        if not _LIBRARY.search(frame.file):
            user = frame
        path = frame.file.replace("\\", "/")
        first_step |= frame.function == "_init_group" and "torch/optim/" in path
        text = f"{path}\t{frame.function}\t{frame.code}"
        for phase, pattern in _RULES:
            if pattern.search(text):
                if not named or named[-1][0] != phase:
                    named.append((phase, frame))
                break
    if not named:
        return Told(user_frame=user.shown() if user else None)
    context = next((entry for entry in named if entry[0] in _CONTEXT), None)
    phase, frame = context or next((e for e in named if e[0] == "backward"), None) or named[-1]
    return Told(
        phase, tuple(phase for phase, _ in named), frame.shown(), user.shown() if user else None, first_step
    )

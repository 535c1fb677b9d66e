"""Every change that we make to foreign code: one function for each, the original kept by ``weave``.

All are installed right after the user's ``import torch`` and never removed. Each is
switched by one flag (``phases.on``), so that nothing of the user's is recompiled.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, List

from . import simulated
from .guard import contain
from .weave import weave

if TYPE_CHECKING:
    from .phases import Phases
    from .process import Monitored
    from .reading import Reading


def patch_torch(torch: Any, phases: "Phases") -> List[str]:
    """Install all patches of torch itself; the names of those that could not be."""
    failed = []
    for patch in PATCHES:
        try:
            patch(torch, phases)
        except (ValueError, SyntaxError, AttributeError, OSError) as error:  # noqa: PERF203
            failed.append(patch.__name__)
            contain("patch %s" % patch.__name__, error)
    return failed


def compiling(torch: Any) -> Callable[[], bool]:
    """Whether torch.compile is tracing the calling frame; a constant to the tracer itself."""
    compiler = getattr(torch, "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        found = getattr(compiler, name, None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return lambda: False


def module_calls(torch: Any, phases: "Phases") -> None:
    """``nn.Module.__call__``: a call of a root module is a forward or an evaluation."""
    module = torch.nn.Module
    module.__call__ = weave(
        module.__call__, phases.enter_module, phases.leave_module, compiling(torch), everything=True
    )


def backward(torch: Any, phases: "Phases") -> None:
    """``torch.autograd.backward``, where every ``Tensor.backward`` ends up, and ``torch.autograd.grad``."""
    for name, enter in (("backward", phases.enter_backward), ("grad", phases.enter_grad)):
        woven = weave(getattr(torch.autograd, name), enter, phases.leave, compiling(torch))
        setattr(torch.autograd, name, woven)


def optimizer_steps(torch: Any, phases: "Phases") -> None:
    """``Optimizer.profile_hook_step``, the decorator that every optimizer class puts around its ``step``."""
    optimizer = torch.optim.Optimizer
    woven = weave(
        optimizer.profile_hook_step, phases.enter_optimizer, phases.leave_optimizer, compiling(torch),
        inner="wrapper", everything=True,
    )  # fmt: skip
    optimizer.profile_hook_step = staticmethod(woven)


def optimizer_creation(torch: Any, phases: "Phases") -> None:
    """``Optimizer.__init__``: a new optimizer has yet to make its state."""
    optimizer = torch.optim.Optimizer
    optimizer.__init__ = weave(
        optimizer.__init__, lambda optimizer: optimizer, phases.made_optimizer, compiling(torch)
    )


def loading(torch: Any, phases: "Phases") -> None:
    """``torch.load``, ``Module.load_state_dict`` and ``Module._apply`` (``to``, ``cuda``, ``half``)."""
    torch.load = torch.serialization.load = _as_load(torch.load, phases)
    module = torch.nn.Module
    for name in ("load_state_dict", "_apply"):
        setattr(module, name, _as_load(getattr(module, name), phases))


def saving(torch: Any, phases: "Phases") -> None:
    """``torch.save``."""
    torch.save = torch.serialization.save = _as_save(torch.save, phases)


def _as_load(function: Callable[..., Any], phases: "Phases") -> Callable[..., Any]:
    transfers = phases.transfers
    return weave(function, transfers.enter_load, transfers.leave, compiling(sys.modules["torch"]))


def _as_save(function: Callable[..., Any], phases: "Phases") -> Callable[..., Any]:
    transfers = phases.transfers
    return weave(function, transfers.enter_save, transfers.leave, compiling(sys.modules["torch"]))


def recomputation(module: Any, phases: "Phases") -> None:
    """The function within ``torch.utils.checkpoint`` that runs again what was checkpointed.

    And the one by which reentrant checkpointing runs it the first time.
    """
    names = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")
    name = next(name for name in names if hasattr(module, name))  # since 2.14, and before
    enter, leave = phases.enter_recompute, phases.leave_module
    quiet = compiling(sys.modules["torch"])
    woven = weave(getattr(module, name), enter, leave, quiet, inner="recompute_fn", given="fn")
    setattr(module, name, woven)
    first, begin, end = module.CheckpointFunction, phases.enter_checkpoint, phases.leave_checkpoint
    first.forward = staticmethod(weave(first.forward, begin, end, quiet))


def graphs(torch: Any, phases: "Phases") -> None:
    """``CUDAGraph``: capture as one phase, each replay as one."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    if graph is None or "replay" not in vars(graph):
        return  # a build without graphs
    quiet = compiling(torch)
    graph.replay = weave(graph.replay, phases.graphs.enter_replay, phases.leave, quiet)
    graph.capture_begin = weave(graph.capture_begin, lambda graph: graph, phases.graphs.capture_began, quiet)
    graph.capture_end = weave(graph.capture_end, phases.graphs.capture_ends, lambda token, error: None, quiet)


def markers(torch: Any, phases: "Phases") -> None:
    """``empty_cache`` and changes of the allocator's settings: moments that explain a curve.

    Patched where they enter C++, whoever calls them.
    """
    entries = {
        "_cuda_emptyCache": "empty_cache",
        "_accelerator_emptyCache": "empty_cache",
        "_cuda_cudaCachingAllocator_set_allocator_settings": "allocator settings",
        "_accelerator_setAllocatorSettings": "allocator settings",
    }
    for entry, name in entries.items():
        original = getattr(torch._C, entry, None)
        if original is not None:
            setattr(torch._C, entry, _marking(original, name, phases))


def _marking(original: Callable[..., Any], name: str, phases: "Phases") -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any) -> Any:
        result = original(*args)
        phases.mark(name)
        return result

    return call


def transformers_models(module: Any, phases: "Phases") -> None:
    """``PreTrainedModel.from_pretrained`` and ``save_pretrained`` of Hugging Face."""
    model = module.PreTrainedModel
    model.from_pretrained = classmethod(_as_load(model.from_pretrained.__func__, phases))
    model.save_pretrained = _as_save(model.save_pretrained, phases)


def transformers_generation(module: Any, phases: "Phases") -> None:
    """``generate`` of Hugging Face, below the decorators that it is given."""
    if simulated.is_simulated():
        simulated.end_generation(module)
    mixin, quiet = module.GenerationMixin, compiling(sys.modules["torch"])
    decorated = mixin.generate
    plain = inspect.unwrap(decorated)
    woven = weave(plain, phases.regions.enter_generate, phases.regions.leave_generate, quiet)
    if decorated is plain:
        mixin.generate = woven
        return
    layer = decorated
    while layer.__wrapped__ is not plain:
        layer = layer.__wrapped__
    for cell in layer.__closure__ or ():
        if cell.cell_contents is plain:
            cell.cell_contents = woven


def transformers_caches(module: Any, phases: "Phases") -> None:
    """``Cache.__init__`` of Hugging Face: key-value caches, for what allocated memory is made of."""
    cache = module.Cache
    cache.__init__ = weave(
        cache.__init__, phases.regions.note_cache, lambda token, error: None, compiling(sys.modules["torch"])
    )


def untraced_agent(module: Any, phases: "Phases") -> None:
    """``torch.compile``'s list of what it never compiles: our own functions.

    Asked to compile ``model.__call__`` itself (as Hugging Face's ``generate`` does) it steps over
    torch's frame, in which our hooks stand, and would go on with the hooks.
    """
    module.SKIP_DIRS.append(os.path.dirname(__file__) + os.sep)
    module._recompile_re()


def compiled_functions(module: Any, phases: "Phases") -> None:
    """What ``torch.compile`` makes of a function: a call of it is one region, whatever is in it."""
    context, quiet = module._TorchDynamoContext, compiling(sys.modules["torch"])
    _leave_uncompiled(module, phases)
    for inner in ("compile_wrapper", "_fn"):  # since 2.8, and before
        try:
            enter, leave = phases.regions.enter_compiled, phases.regions.leave_compiled
            woven = weave(context.__call__, enter, leave, quiet, inner=inner, given="fn")
        except ValueError:
            continue
        context.__call__ = woven
        return
    raise ValueError("no wrapper of compiled functions")


def _leave_uncompiled(module: Any, phases: "Phases") -> None:
    """Where a region calls our functions in between, what they call in turn is not compiled either.

    JSON's encoder would be, for one: it costs time, and the program counts frames that are not its own.
    """
    set_strategy = getattr(module, "set_code_exec_strategy", None)
    strategy, action = getattr(module, "FrameExecStrategy", None), getattr(module, "FrameAction", None)
    if set_strategy is None or strategy is None or action is None:
        return  # before 2.8
    quiet: Any = compiling(sys.modules["torch"])
    set_strategy(quiet.__code__, strategy(action.SKIP, action.DEFAULT))
    for entry in (phases.enter_module, phases.leave):  # all that is contained has the code of the second
        set_strategy(entry.__code__, strategy(action.SKIP, action.SKIP))


def deepspeed_engine(module: Any, phases: "Phases") -> None:
    """``DeepSpeedEngine.step``: its optimizers are none of torch's."""
    engine = module.DeepSpeedEngine
    engine.step = weave(
        engine.step, phases.engines.enter_engine, phases.engines.leave_engine, compiling(sys.modules["torch"])
    )


def distributed_saving(module: Any, phases: "Phases") -> None:
    """``torch.distributed.checkpoint.save`` and ``async_save``, below the decorators that they are given."""
    module._save_state_dict = _as_save(module._save_state_dict, phases)


def distributed_loading(module: Any, phases: "Phases") -> None:
    """``torch.distributed.checkpoint.load``, likewise."""
    module._load_state_dict = _as_load(module._load_state_dict, phases)


def safetensors_files(module: Any, phases: "Phases") -> None:
    """``safetensors.torch.load_file`` and ``save_file``."""
    module.load_file = _as_load(module.load_file, phases)
    module.save_file = _as_save(module.save_file, phases)


def process_groups(torch: Any, phases: "Phases") -> None:
    """``_update_default_pg``, the last act of ``init_process_group``: a marker, and the rank is known."""
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    if distributed is None:
        return  # a build without torch.distributed
    distributed._update_default_pg = weave(  # type: ignore[attr-defined]
        distributed._update_default_pg, lambda group: distributed, phases.on_process_group, compiling(torch)
    )


def custom_allocators(torch: Any, reading: "Reading") -> None:
    """Learn of allocators that may re-enter Python, and of the memory pools that use them.

    Another thread that reads counters while such an allocator runs would deadlock
    with it (the GIL against the allocator's mutex).
    """
    memory = torch.cuda.memory
    pluggable = getattr(memory, "CUDAPluggableAllocator", None)
    if pluggable is not None:
        pluggable.__init__ = _telling(pluggable.__init__, reading)
    custom = getattr(torch._C, "_cuda_customAllocator", None)
    if custom is not None:
        torch._C._cuda_customAllocator = _telling(custom, reading)
    use = getattr(memory, "use_mem_pool", None)
    if use is None:
        return

    @functools.wraps(use)
    @contextlib.contextmanager
    def use_mem_pool(pool: Any, device: Any = None) -> Any:
        guarded = getattr(pool, "allocator", None) is not None
        reading.enter_custom_pool(+guarded)
        try:
            with use(pool, device):
                yield
        finally:
            reading.enter_custom_pool(-guarded)

    memory.use_mem_pool = use_mem_pool
    if getattr(torch.cuda, "use_mem_pool", None) is use:
        torch.cuda.use_mem_pool = use_mem_pool


def initialisation(torch: Any, monitored: "Monitored") -> None:
    """``torch.cuda._lazy_init``: the very first allocation may fail, so the observer is there before it."""

    def enter(_: Any) -> Any:
        return True if monitored.failures is None else None

    def leave(_: Any, error: Any) -> None:
        if error is None and torch.cuda.is_initialized():
            monitored.observe()

    try:
        torch.cuda._lazy_init = weave(torch.cuda._lazy_init, enter, leave, compiling(torch))
    except (ValueError, SyntaxError, AttributeError, OSError) as error:
        contain("patch initialisation", error)  # the observer comes a moment later then


def _telling(original: Callable[..., Any], reading: "Reading") -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        reading.on_custom_allocator()
        return original(*args, **kwargs)

    return call


PATCHES = (
    module_calls, backward, optimizer_steps, optimizer_creation, loading, saving, graphs, markers,
    process_groups,
)  # fmt: skip
"""Patches of torch itself, in the order in which they are installed."""

AFTERWARDS = {
    "transformers.modeling_utils": transformers_models,
    "transformers.generation.utils": transformers_generation,
    "transformers.cache_utils": transformers_caches,
    "safetensors.torch": safetensors_files,
    "torch.distributed.checkpoint.state_dict_saver": distributed_saving,
    "torch.distributed.checkpoint.state_dict_loader": distributed_loading,
    "deepspeed.runtime.engine": deepspeed_engine,
    "torch.utils.checkpoint": recomputation,
    "torch._dynamo.eval_frame": compiled_functions,
    "torch._dynamo.trace_rules": untraced_agent,
}
"""Patches of other libraries, each right after the user's own import of it."""

"""Runs our code before and after a foreign Python function, without adding a frame to anybody's traceback.

A wrapper would stand in every traceback that passes through it, and so change what
the user's program prints. Instead the function is compiled anew from its own source,
with the same file name, lines and columns, and its body set into::

    if _gpumem_quiet():            # being traced by torch.compile: the body alone
        BODY
    else:
        span = _gpumem_enter_N(first_argument)
        try: BODY
        except BaseException as error: leave(span, error); raise
        finally: leave(span, None) if it was not left

Refuses (ValueError): functions without source, generators, coroutines. The original
function is never changed; the caller puts the woven one in its place.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import sys
import types
from typing import Any, Callable, Dict, List, Optional, Set

_numbers = itertools.count()

_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_entered: Dict[int, str] = {}
"""By identity of the code of what was woven, which lives on: the name of its ``enter``."""

_FRAME = """
if _gpumem_quiet():
    pass
else:
    _gpumem_span = {enter}({argument})
    try:
        pass
    except BaseException as _gpumem_error:
        if _gpumem_span is not None:
            {leave}(_gpumem_span, _gpumem_error)
            _gpumem_span = None
        raise
    finally:
        if _gpumem_span is not None:
            {leave}(_gpumem_span, None)
"""


def weave(
    function: Callable[..., Any],
    enter: Callable[..., Optional[Any]],
    leave: Callable[[Any, Optional[BaseException]], None],
    quiet: Callable[[], bool],
    inner: Optional[str] = None,
    everything: bool = False,
    given: Optional[str] = None,
) -> Callable[..., Any]:
    """``function`` with ``enter`` before and ``leave`` after it.

    ``enter`` gets the first argument (the tuple of them where it is ``*args``) and
    returns a token, or None for "nothing to leave". ``inner`` names a function
    defined within, which is woven instead (a decorator's wrapper). With ``everything``,
    ``enter`` also gets the tuple and the dict of the remaining arguments, where the
    function takes ``*args, **kwargs``. ``given`` is an expression in the function's own
    names that ``enter`` gets instead.
    Raises ValueError or SyntaxError where that cannot be done.
    """
    raw = inspect.unwrap(function)
    if not isinstance(raw, types.FunctionType) or raw is not function:
        raise ValueError("not a plain Python function")
    if inner is None and raw.__code__.co_flags & _SUSPENDED:
        raise ValueError("generators and coroutines are not woven")
    tree, node = _parse(raw.__code__)
    target = node if inner is None else _find(node, inner)
    number = next(_numbers)
    names = {"enter": "_gpumem_enter_%d" % number, "leave": "_gpumem_leave_%d" % number}
    _set_into_frame(target, names, everything, given)
    raw.__globals__["_gpumem_quiet"] = quiet
    raw.__globals__[names["enter"]] = enter
    raw.__globals__[names["leave"]] = leave
    woven = _compile(raw, tree, node)
    code = woven.__code__ if inner is None else _code_within(woven.__code__, inner)
    _entered[id(code)] = enter.__name__
    return woven


def entered() -> Set[str]:
    """Names of the ``enter`` of those woven functions that the calling thread is in, besides the innermost.

    Reads no frame's variables: to look at them would keep what they hold.
    """
    found: List[str] = []
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None:
        name = _entered.get(id(frame.f_code))
        if name is not None:
            found.append(name)
        frame = frame.f_back
    return set(found[1:])


def _parse(code: types.CodeType) -> "tuple[ast.Module, ast.FunctionDef]":
    """The function's syntax tree, every node at its true line and column."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    if not lines:
        raise ValueError("no source")
    try:
        node = _parsed(code, _quick_block(lines))
    except SyntaxError:  # it ends elsewhere than it seems to
        node = _parsed(code, inspect.getblock(lines))
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
        raise ValueError("the source is not that of the function")
    node.decorator_list = []
    return ast.Module(body=[node], type_ignores=[]), node


def _parsed(code: types.CodeType, block: List[str]) -> ast.stmt:
    """The first statement of a block, after as many empty lines as stand before it in its file."""
    indented = block[0][:1].isspace()
    before = "\n" * (code.co_firstlineno - 1 - int(indented)) + ("if 1:\n" if indented else "")
    first = ast.parse(before + "".join(block)).body[0]
    return first.body[0] if indented else first  # type: ignore[attr-defined]


def _quick_block(lines: List[str]) -> List[str]:
    """Lines up to the next that stands no deeper than the first (``inspect.getblock`` is far slower).

    What is cut off within brackets or a string is no syntax then.
    """
    outer = len(lines[0]) - len(lines[0].lstrip())
    defined = False
    for at, line in enumerate(lines):
        text = line.lstrip()
        if not text or text[0] in "#)]}" or len(line) - len(text) > outer:
            continue
        if defined:
            return lines[:at]
        defined = text.startswith("def ")  # before it stand its decorators
    return lines


def _find(node: ast.FunctionDef, name: str) -> ast.FunctionDef:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef) and inner.name == name and inner is not node:
            return inner
    raise ValueError("no function %s within" % name)


def _set_into_frame(
    node: ast.FunctionDef, names: "dict[str, str]", everything: bool, given: Optional[str]
) -> None:
    arguments = node.args
    first: List[ast.arg] = getattr(arguments, "posonlyargs", []) + arguments.args
    argument = first[0].arg if first else arguments.vararg.arg if arguments.vararg else "None"
    if everything:
        if arguments.vararg is None or arguments.kwarg is None:
            raise ValueError("the function does not take *args, **kwargs")
        argument = ", ".join((argument, arguments.vararg.arg, arguments.kwarg.arg))
    argument = given or argument
    frame = ast.parse(_FRAME.format(argument=argument, **names)).body[0]
    body = node.body
    for part in ast.walk(frame):
        if hasattr(part, "lineno"):
            part.lineno = part.end_lineno = body[0].lineno  # type: ignore[attr-defined]
            part.col_offset = part.end_col_offset = 0  # type: ignore[attr-defined]
    assert isinstance(frame, ast.If) and isinstance(frame.orelse[1], ast.Try)
    declared = _take_declarations(body)
    frame.body = frame.orelse[1].body = body  # the compiler reads it twice, and changes nothing
    node.body = declared + [frame]


def _take_declarations(body: List[ast.stmt]) -> List[ast.stmt]:
    """``global`` and ``nonlocal`` statements of a body, taken out to stand before both of its copies."""
    taken: List[ast.stmt] = []
    waiting: List[Any] = [body]
    while waiting:
        block = waiting.pop()
        for at, statement in enumerate(block):
            if isinstance(statement, (ast.Global, ast.Nonlocal)):
                taken.append(statement)
                block[at] = ast.copy_location(ast.Pass(), statement)
            elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                waiting.extend(getattr(statement, field, []) for field in ("body", "orelse", "finalbody"))
                waiting.extend(handler.body for handler in getattr(statement, "handlers", []))
    return taken


def _compile(raw: types.FunctionType, tree: ast.Module, node: ast.FunctionDef) -> Callable[..., Any]:
    cells = raw.__code__.co_freevars
    node.args.defaults = [_nothing(d) for d in node.args.defaults]
    node.args.kw_defaults = [d and _nothing(d) for d in node.args.kw_defaults]
    node.returns = None
    for arg in ast.walk(node.args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    if cells:
        maker = ast.parse("def maker(%s): pass" % ", ".join(cells)).body[0]
        assert isinstance(maker, ast.FunctionDef)
        maker.body = [node]
        tree.body = [maker]
    flags = raw.__code__.co_flags & sum(
        getattr(__import__("__future__"), name).compiler_flag for name in ("annotations",)
    )
    made = compile(tree, raw.__code__.co_filename, "exec", flags, True)
    code = _code_within(made, raw.__code__.co_name)
    changes: "dict[str, Any]" = {"co_firstlineno": raw.__code__.co_firstlineno}
    if sys.version_info >= (3, 11):
        changes["co_qualname"] = raw.__code__.co_qualname
    code = code.replace(**changes)
    by_name = dict(zip(cells, raw.__closure__ or ()))  # noqa: B905  no strict= in 3.8
    closure = tuple(by_name[name] for name in code.co_freevars)
    woven = types.FunctionType(code, raw.__globals__, raw.__name__, raw.__defaults__, closure)
    woven.__kwdefaults__ = raw.__kwdefaults__
    functools.update_wrapper(woven, raw)
    del woven.__wrapped__  # type: ignore[attr-defined]
    return woven


def _nothing(node: ast.expr) -> ast.expr:
    """Defaults are taken from the original function; their expressions are not evaluated again."""
    return ast.copy_location(ast.Constant(value=None), node)


def _code_within(code: types.CodeType, name: str) -> types.CodeType:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_name == name:
                return constant
            found = [c for c in constant.co_consts if isinstance(c, types.CodeType) and c.co_name == name]
            if found:
                return found[0]
    raise ValueError("the compiled source lacks the function")

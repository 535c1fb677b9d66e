"""Woven code runs before and after a function, and leaves no trace in tracebacks, names or results."""

import inspect
import traceback

import pytest

from gpumem_tui.agent.weave import entered, weave


def add(a, b=2, *, c=3):
    """Add three numbers."""
    if a < 0:
        raise ValueError("negative")
    return a + b + c


def make_scaled(factor):
    def scaled(value, bonus=[1]):  # noqa: B006  the default must stay the same object
        return value * factor + bonus[0]

    return scaled


def decorate(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


# fmt: off
def laid_out_oddly(a,
b=2
):
    text = """
first column"""
# a comment in the first column
    return (
a + b, text)
# fmt: on


def counted(*numbers):
    yield from numbers


counter = 0


def counting(step):
    if step > 0:
        global counter
        counter += step
    return counter


class Log:
    """What enter and leave were told."""

    def __init__(self, token="token"):
        self.lines = []
        self.token = token

    def enter(self, first):
        self.lines.append(("enter", first))
        return self.token

    def leave(self, token, error):
        self.lines.append(("leave", token, type(error).__name__ if error else None))


def never():
    return False


def test_the_function_is_entered_with_its_first_argument_and_left_without_error():
    log = Log()

    assert weave(add, log.enter, log.leave, never)(1, c=10) == 13
    assert log.lines == [("enter", 1), ("leave", "token", None)]


def test_an_exception_leaves_once_with_the_error():
    log = Log()

    with pytest.raises(ValueError, match="negative"):
        weave(add, log.enter, log.leave, never)(-1)

    assert log.lines == [("enter", -1), ("leave", "token", "ValueError")]


def test_a_function_that_declares_globals_still_sets_them():
    woven = weave(counting, Log().enter, Log().leave, never)

    assert woven(2) + 3 == counting(3)


def test_without_a_token_nothing_is_left():
    log = Log(token=None)
    weave(add, log.enter, log.leave, never)(1)

    assert log.lines == [("enter", 1)]


def test_while_being_traced_the_body_runs_alone():
    log = Log()

    assert weave(add, log.enter, log.leave, lambda: True)(1) == 6
    assert log.lines == []


def test_a_traceback_through_it_is_the_same_text():
    log = Log()
    texts = []
    for function in (add, weave(add, log.enter, log.leave, never)):
        try:
            function(-1)
        except ValueError as error:  # noqa: PERF203
            texts.append(traceback.format_tb(error.__traceback__)[1:])

    assert texts[0] == texts[1]


def test_the_caller_s_frame_is_still_one_up():
    def depth(_=None):
        return len(inspect.stack(0))

    assert weave(depth, Log().enter, Log().leave, never)() == depth()


def test_names_signature_defaults_and_closure_are_those_of_the_original():
    original = make_scaled(3)
    woven = weave(original, Log().enter, Log().leave, never)

    assert woven(2) == 7
    assert woven.__defaults__[0] is original.__defaults__[0]
    assert inspect.signature(woven) == inspect.signature(original)
    assert (woven.__name__, woven.__qualname__, woven.__module__) == (
        original.__name__, original.__qualname__, original.__module__,
    )  # fmt: skip


def test_a_function_ends_where_it_ends_and_not_where_it_seems_to():
    log = Log()

    assert weave(laid_out_oddly, log.enter, log.leave, never)(1) == (3, "\nfirst column")


def test_the_original_is_not_changed():
    log = Log()
    weave(add, log.enter, log.leave, never)
    add(1)

    assert log.lines == []


def test_a_decorator_s_wrapper_can_be_woven():
    log = Log()
    woven = weave(decorate, log.enter, log.leave, never, inner="wrapper")(add)

    assert woven(4) == 9
    assert log.lines == [("enter", (4,)), ("leave", "token", None)]


def test_an_exception_handled_outside_is_not_taken_for_one_of_the_function():
    log = Log()
    woven = weave(add, log.enter, log.leave, never)
    try:
        raise KeyError
    except KeyError:
        woven(1)

    assert log.lines[-1] == ("leave", "token", None)


def test_a_thread_knows_which_woven_functions_it_is_in():
    asked = []

    def ask(first):
        asked.append(entered())

    log = Log()
    inner = weave(add, ask, log.leave, never)

    def outer(a):
        return inner(a)

    inner(1)
    weave(make_scaled(1), log.enter, log.leave, never)(1)
    decorated = weave(decorate, log.enter, log.leave, never, inner="wrapper")(outer)
    decorated(1)

    assert asked == [set(), {"enter"}]


@pytest.mark.parametrize("function", [len, counted])
def test_what_cannot_be_woven_is_refused(function):
    with pytest.raises(ValueError, match=r"plain Python function|not woven"):
        weave(function, Log().enter, Log().leave, never)

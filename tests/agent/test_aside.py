"""Threads of ours: beside the user's, and met by nothing that asks for threads."""

import signal
import threading

from gpumem_tui.agent.aside import SYNCHRONOUS, Aside


def run_aside(work):
    thread = Aside(work, "test")
    thread.start()
    thread.join(10)

    assert not thread.is_alive()


def test_a_thread_is_neither_listed_nor_traced():
    seen, traced = [], []
    threading.setprofile(lambda frame, event, arg: traced.append(event))
    try:
        run_aside(lambda: seen.append(threading.active_count()))
    finally:
        threading.setprofile(None)

    assert seen == [threading.active_count()]
    assert traced == []


def test_a_thread_takes_no_signal_of_the_users_and_leaves_alone_those_of_its_own_doing():
    blocked = []
    run_aside(lambda: blocked.extend(signal.pthread_sigmask(signal.SIG_BLOCK, ())))

    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM} <= set(blocked)
    assert not {getattr(signal, name) for name in SYNCHRONOUS} & set(blocked)


def test_it_is_alive_until_its_work_is_done():
    go_on = threading.Event()
    thread = Aside(go_on.wait, "test")
    thread.start()
    thread.join(0.01)

    assert thread.is_alive()
    go_on.set()
    thread.join(10)
    assert not thread.is_alive()

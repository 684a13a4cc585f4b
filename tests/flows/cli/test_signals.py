"""A signal ends a command wherever it arrives."""

import ctypes
import os
import signal
import time

import pytest

from tilewright.flows.cli.signals import signals_interrupt


def signalled():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


class Dying:
    def __del__(self):
        signalled()


def delete():
    dying = Dying()
    del dying


def call_back():
    @ctypes.CFUNCTYPE(None)
    def meet():
        signalled()

    meet()


@pytest.mark.parametrize("act", [delete, call_back])
def test_a_signal_where_python_drops_exceptions_is_not_lost(act):
    ended_by = []

    def run():
        with signals_interrupt(ended_by, lambda: None):
            act()
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert ended_by == [signal.SIGINT]

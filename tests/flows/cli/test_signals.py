"""A signal ends a command wherever it arrives."""

import os
import signal
import time

import pytest

from tilewright.flows.cli.signals import signals_interrupt


class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)


def test_a_signal_while_an_object_is_deleted_is_not_lost():
    ended_by = []

    def delete():
        with signals_interrupt(ended_by, lambda: None):
            dying = Dying()
            del dying
            time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        delete()
    assert ended_by == [signal.SIGINT]

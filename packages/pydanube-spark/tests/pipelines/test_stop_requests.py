"""Tests of the signals that stop a run."""

import os
import signal

from pydanube_spark.pipelines.stop_requests import StopRequest, signals_to


def test_second_signal_stops_immediately():
    stop_request = StopRequest()
    before = signal.getsignal(signal.SIGTERM)
    with signals_to(stop_request):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop_request.number == signal.SIGTERM
        assert not stop_request.is_immediate
        os.kill(os.getpid(), signal.SIGINT)
        assert stop_request.number == signal.SIGTERM
        assert stop_request.is_immediate
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_process_stops_when_its_supervisor_has_ended():
    supervised = StopRequest(parent=os.getppid())
    supervised.poll()
    assert supervised.number is None
    orphaned = StopRequest(parent=-1)
    orphaned.poll()
    orphaned.poll()
    assert orphaned.number == signal.SIGTERM
    assert not orphaned.is_immediate

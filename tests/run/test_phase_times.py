"""The time of a run by phase."""

from __future__ import annotations

import pytest

import muster
from helpers import same_bits
from muster.run.checkpoint import Keep
from muster.run.phase_times import PHASES, PhaseTimes, TimedClients


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


def test_a_phase_inside_another_counts_for_itself_alone(clock):
    times = PhaseTimes(clock)
    clock.pass_by(1)
    with times.phase("train"):
        clock.pass_by(2)
        times.time("appraise", clock.pass_by)(4)
        clock.pass_by(8)
    clock.pass_by(16)
    took = times.seconds
    assert (took["rest"], took["train"], took["appraise"]) == (17, 10, 4)
    assert sum(took.values()) == clock.now


def test_a_phase_ends_with_an_error(clock):
    times = PhaseTimes(clock)
    with pytest.raises(ZeroDivisionError):
        times.time("train", lambda: 1 / 0)()
    clock.pass_by(3)
    assert times.seconds == {**dict.fromkeys(PHASES, 0.0), "rest": 3}


def test_clients_are_timed_by_what_they_are_asked(clock):
    class Slow:
        name = "slow"

        def respond(self, seconds):
            clock.pass_by(seconds)
            return "done"

    times = PhaseTimes(clock)
    clients = TimedClients(Slow(), times)
    assert clients.respond(5) == "done"
    assert clients.name == "slow"
    assert times.seconds["train"] == 5


def test_a_timed_run_has_the_same_bits_and_every_phase(tmp_path):
    fed = muster.data.digits(clients=4, priority=1)
    job = muster.Job(muster.methods.fedalign(0.5, warmup=0), muster.models.Softmax(), rounds=3)
    times = PhaseTimes()
    keep = Keep(2, tmp_path / "saved", 1)
    timed = muster.run_job(fed, job, keep=keep, times=times)
    assert same_bits(timed, muster.run_job(fed, job, keep=Keep(2)))
    took = times.seconds
    for phase in ("appraise", "train", "aggregate", "measure", "store"):
        assert took[phase] > 0, phase

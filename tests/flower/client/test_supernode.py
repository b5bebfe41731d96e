"""A node waits for a message's objects as long as they can still come, and no longer."""

from __future__ import annotations

import inspect

import pytest
from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectUnavailableError,
    pull_and_inflate_object_from_tree,
    pull_objects,
)
from flwr.supercore.run import RunNotRunningException
from flwr.supernode import start_client_internal
from flwr.supernode.runtime import run_clientapp

import muster
from muster.flower.client import supernode


@pytest.fixture
def as_before():
    functions = (pull_objects, pull_and_inflate_object_from_tree)
    before = [dict(f.__kwdefaults__) for f in functions]
    yield
    for function, defaults in zip(functions, before, strict=True):
        function.__kwdefaults__.update(defaults)


def never(object_id):
    raise ObjectUnavailableError(object_id)


def test_what_bounds_a_pull_is_still_there_in_flower():
    """So that an upgrade is noticed."""
    assert inspect.signature(pull_objects).parameters["max_time"].default == 7200
    assert pull_objects.__kwdefaults__["max_tries_per_object"] == 500
    assert start_client_internal.pull_objects is pull_objects
    assert run_clientapp.pull_and_inflate_object_from_tree is pull_and_inflate_object_from_tree
    assert not issubclass(RunNotRunningException, Exception)  # Flower's own clean-up misses it


def test_objects_that_never_come_are_waited_for_so_long(as_before):
    supernode.set_pull_timeout(0.0)
    with pytest.raises(ObjectPullError, match="timeout or retry limit"):
        pull_objects(["a"], never)
    assert pull_and_inflate_object_from_tree.__kwdefaults__["max_time"] == 0.0


def test_another_version_of_flower_is_named(monkeypatch):
    monkeypatch.setattr(inflatable_utils, "pull_objects", lambda: None)
    with pytest.raises(muster.MusterError, match=r"pull_objects has no max_time; install flwr"):
        supernode.set_pull_timeout(1.0)


def test_the_end_of_a_run_is_the_end_of_its_messages():
    def over(object_id):
        raise RunNotRunningException

    pull = supernode.stop_with_run(pull_objects)
    with pytest.raises(ObjectPullError, match="the run is over"):
        pull(["a", "b"], pull_object_fn=over)
    assert pull(["a"], pull_object_fn=lambda name: b"x") == {"a": b"x"}

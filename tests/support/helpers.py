"""Small things the tests share."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import torch
from torch import nn

import muster
import reference
from muster.config.experiment import load
from muster.protocol import Offer, Roster


def federation(data, priority=None, **more):
    """A federation from plain pairs, without the note on single-class clients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", muster.MusterWarning)
        return muster.Federation.from_arrays(train=data, priority=priority, **more)


def nine_clients():
    """Nine clients of a random problem, three of them priority."""
    data, priority = reference.problem(0, clients=9)
    return federation(data, priority)


def roster_of(priority, importance=None):
    """A roster of clients 0, 1, ... who each count a tenth."""
    priority = np.array(priority, bool)
    a = np.where(priority, 1.0, 0.0) if importance is None else np.array(importance)
    return Roster(np.arange(len(priority)), priority, a, np.full(len(priority), 0.1))


def offer(loss=1.0, accuracy=0.5, eps=0.2, round=0):
    """What a server broadcasts with a model of two zeros."""
    return Offer(0, round, 10, {"w": torch.zeros(2)}, loss, accuracy, eps)


def module_of(layers):
    """An nn.Module with the parameters of [(W, b), ...]."""
    parts = []
    for i, (w, b) in enumerate(layers):
        linear = nn.Linear(w.shape[1], w.shape[0]).double()
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(w))
            linear.bias.copy_(torch.from_numpy(b))
        parts += [linear] if i == 0 else [nn.ReLU(), linear]
    return nn.Sequential(*parts)


def layers_of(run):
    """[(W, b), ...] of a run's weights."""
    names = list(run.weights)
    return [(run.weights[w], run.weights[b]) for w, b in zip(names[::2], names[1::2], strict=True)]


def random_layers(widths, seed=0):
    draw = np.random.default_rng(seed)
    return [
        (draw.normal(size=(b, a)) * 0.3, draw.normal(size=b) * 0.1)
        for a, b in zip(widths, widths[1:], strict=False)
    ]


def gap(a, b):
    """The largest difference between two models given as [(W, b), ...]."""
    return max(
        float(np.abs(x - y).max())
        for p, q in zip(a, b, strict=True)
        for x, y in zip(p, q, strict=True)
    )


def admitted(run, column="admitted"):
    """For each round, the clients that were let in (or joined)."""
    frame = run.clients.filter(column)
    return [
        sorted(frame.filter(frame["round"] == t)["client"].to_list())
        for t in run.rounds["round"].to_list()
    ]


def same_bits(a, b):
    """Whether two runs ended in exactly the same place, tables included (times aside)."""
    weights = all(np.array_equal(a.weights[n], b.weights[n]) for n in a.weights)
    return (
        weights
        and a.rounds.drop("seconds").equals(b.rounds.drop("seconds"))
        and a.clients.equals(b.clients)
    )


def cut_short(table, trusted=True):
    """The experiment of a table, with two rounds and one seed."""
    chosen = load(table, trusted)
    s = chosen.settings
    few = replace(s, rounds=min(s.rounds, 2), seeds=s.all_seeds[:1], report_at=())
    return replace(chosen, settings=few)


def alive(pid):
    """Whether a process runs: it is there, and no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

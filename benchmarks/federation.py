"""The cost of a federation over Flower: time, memory and bytes as clients grow.

    python benchmarks/federation.py                 all of it (about ten minutes on two cores)
    python benchmarks/federation.py rounds traffic  some of it
    python benchmarks/federation.py --write         all of it, and put the tables into
                                                    docs/scaling.md

rounds     one round in this process, the clients' own work taken out: what the server does
processes  one round of real supernodes on this machine, with TLS and keys
traffic    bytes of a client that joins and of one that abstains
reference  how well F(w) is known from some of the priority clients
keys       what it costs to tell who is connected
projection what one server would spend on more, and a hundred regions
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import torch
from rich.console import Console

import muster
from muster.config.experiment import Experiment, load
from muster.config.network import Member, members_of
from muster.engines import choose
from muster.flower.local.loopback import (
    client_names,
    descendants,
    loopback,
    start_nodes,
)
from muster.flower.server.app import federate
from muster.flower.testing.in_process import InProcess, Site, write_sites
from muster.flower.transport.keys import KeyRegistry
from muster.models.specs import as_module
from muster.results import store
from page import format_table, write_block
from run import show

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
SOFTMAX, MLP = {"name": "softmax"}, {"name": "mlp", "hidden": [200, 200]}


def chosen_for(clients: int, model: dict[str, object], **settings: object) -> Experiment:
    """FedAvg on digits over so many clients, measured at the end only."""
    table = {
        "rounds": 3,
        "evaluate_every": 0,
        "data": {"name": "digits", "clients": clients, "partition": {"kind": "iid"}},
        "model": model,
        "method": {"name": "fedavg"},
        "local": {"steps": 1},
        **settings,
    }
    return load(table)


class TimedGrid(InProcess):
    """Knows how long the clients took, request after request."""

    def __init__(self, sites):
        super().__init__(sites)
        self.clients: list[float] = []

    def push_messages(self, messages):
        self.clients.append(0.0)
        return super().push_messages(messages)

    def deliver(self, message, site):
        began = time.perf_counter()
        reply = super().deliver(message, site)
        self.clients[-1] += time.perf_counter() - began
        return reply


def in_process(chosen: Experiment) -> tuple[muster.Run, TimedGrid]:
    """A run in this process."""
    fed = chosen.federation(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sites = write_sites(fed, folder)
        grid = TimedGrid(sites)
        members = members_of(fed, [site.key.decode() for site in sites])
        here = replace(
            chosen,
            members=members,
            network=replace(chosen.network, classes=10, features=tuple(fed.train.x.shape[1:])),
        )
        return federate(grid, here, folder / "run", lambda line: None), grid


def best_round(clients: int, model: dict[str, object]) -> tuple[muster.Run, float, float]:
    """A run, and the seconds of its best round: all of it, and without the clients' own."""
    run, grid = in_process(chosen_for(clients, model, rounds=6))
    # Requests: hello, six times train, everyone's opinion (within the last round, so not that).
    whole = np.array(run.rounds["seconds"][:5])
    server = whole - np.array(grid.clients[1:6])
    return run, float(whole.min()), float(server.min())


def rounds() -> list[list[str]]:
    rows = [["model", "kB", "clients", "round ms", "server ms", "server ms a client"]]
    for model, name in ((SOFTMAX, "softmax 64x10"), (MLP, "MLP 64-200-200-10")):
        for n in (2, 4, 8, 16, 64, 256):
            run, whole, server = best_round(n, model)
            size = sum(w.nbytes for w in run.weights.values()) / 1e3
            figures = [f"{1e3 * whole:.0f}", f"{1e3 * server:.0f}", f"{1e3 * server / n:.1f}"]
            rows.append([name, f"{size:.1f}", str(n), *figures])
    return rows


def memory_mb(pids: list[int]) -> float:
    said = subprocess.run(
        ["ps", "-o", "rss=", "-p", ",".join(map(str, pids))], capture_output=True, text=True
    )
    return sum(int(word) for word in said.stdout.split()) / 1e3


def processes() -> list[list[str]]:
    rows = [["nodes", "to start s", "seconds a round", "superlink MB", "a node MB"]]
    for n in (2, 4, 8):
        chosen = chosen_for(n, SOFTMAX, name="scale", rounds=4, checkpoint_every=1)
        fed = chosen.federation(0)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            began = time.perf_counter()
            held = {}
            with loopback(client_names(fed), folder / "logs") as link:
                app = start_nodes(link, chosen, fed, folder)

                def say(line: str, link=link, held=held, began=began) -> None:
                    if "clients are in" in line:
                        held["start"] = time.perf_counter() - began
                    elif line.startswith("round"):
                        nodes = [p for name, p in link.processes.items() if "client" in name]
                        held["link"] = memory_mb([link.processes["superlink"].pid])
                        families = [pid for p in nodes for pid in (p.pid, *descendants(p.pid))]
                        held["node"] = memory_mb(families) / len(nodes)

                link.run(app, say)
            run = store.load(folder)
        rows.append(
            [
                str(n),
                f"{held['start']:.0f}",
                f"{run.rounds['seconds'].head(3).median():.1f}",
                f"{held['link']:.0f}",
                f"{held['node']:.0f}",
            ]
        )
    return rows


def traffic() -> list[list[str]]:
    rows = [
        ["model", "weights travel as", "model kB", "joined: up kB", "down kB", "abstained: up kB"]
    ]
    for model, name in ((SOFTMAX, "softmax 64x10"), (MLP, "MLP 64-200-200-10")):
        for dtype, precision in (("float32", "exact"), ("float32", "float16")):
            chosen = chosen_for(
                5,
                model,
                dtype=dtype,
                rounds=3,
                method={"name": "fedalign", "epsilon": 0.6, "warmup": 1},
                data={
                    "name": "digits",
                    "clients": 5,
                    "priority": 2,
                    "partition": {"kind": "dirichlet", "alpha": 0.3},
                },
                local={"steps": 20, "batch_size": 8, "lr": 0.2},
                network={"precision": precision},
            )
            run, _ = in_process(chosen)
            others = run.clients.filter(~pl.col("priority"))
            joined = others.filter(pl.col("joined"))
            silent = others.filter(~pl.col("joined"))
            size = sum(w.nbytes for w in run.weights.values()) / 1e3
            rows.append(
                [
                    name,
                    dtype if precision == "exact" else precision,
                    f"{size:.1f}",
                    f"{joined['bytes_up'].mean() / 1e3:.2f}",
                    f"{joined['bytes_down'].mean() / 1e3:.2f}",
                    f"{silent['bytes_up'].mean() / 1e3:.2f}" if len(silent) else "nobody did",
                ]
            )
    return rows


def reference() -> list[list[str]]:
    """Everyone's loss at a half-trained model; then F(w) from samples of them, many times."""
    rows = [["clients measured", "of", "typical error of F(w)", "as a share of F(w)"]]
    fed = muster.data.fmnist(
        clients=10_000, priority="all", partition=muster.data.LabelMix(alpha=0.3)
    )
    spec = muster.models.Softmax()
    local = muster.Local(steps=5, batch_size=5, lr=0.05)
    method = muster.methods.fedavg(invite=muster.parts.Sample(100))
    run = muster.simulate(fed, method, spec, rounds=20, local=local, evaluate_every=0)
    module = as_module(spec, fed, 0)
    engine = choose(muster.Compute(), module, fed, local)
    weights = {name: torch.from_numpy(w) for name, w in run.weights.items()}
    loss = engine.appraise(weights, np.arange(fed.n)).loss
    truth = float(fed.objective @ loss)
    draw = np.random.default_rng(0)
    for m in (10, 100, 1000, 10_000):
        guesses = []
        for _ in range(200 if m < fed.n else 1):
            some = draw.choice(fed.n, m, replace=False)
            guesses.append(fed.objective[some] @ loss[some] / fed.objective[some].sum())
        error = float(np.sqrt(np.mean((np.array(guesses) - truth) ** 2)))
        rows.append([f"{m:,}", f"{fed.n:,}", f"{error:.4f}", f"{100 * error / truth:.2f} %"])
    return rows


def keys() -> list[list[str]]:
    rows = [["registered", "connected", "first look ms", "every other ms"]]
    for n in (100, 1000, 10_000):
        sites = [Site({}) for _ in range(n)]
        members = tuple(Member(f"c{k}", s.key.decode(), k == 0) for k, s in enumerate(sites))
        registry = KeyRegistry.from_members(members)
        nodes = [SimpleNamespace(node_id=k, public_key=s.key + b"\n") for k, s in enumerate(sites)]
        grid = SimpleNamespace(get_nodes=lambda nodes=nodes: nodes)
        spent = []
        for _ in range(4):
            began = time.perf_counter()
            registry.find_nodes(grid)
            spent.append(1e3 * (time.perf_counter() - began))
        rows.append([f"{n:,}", f"{n:,}", f"{spent[0]:.1f}", f"{min(spent[1:]):.1f}"])
    return rows


def projection() -> list[list[str]]:
    """Project one server's cost of a round from a round of 64 measured here."""
    rows = [
        [
            "asked a round",
            "one server: s of server work",
            "GB through it",
            "s at 1 Gbit/s",
            "100 regions: s at a region",
            "s at the top",
        ]
    ]
    run, _, server = best_round(64, MLP)
    each = server / 64
    one = run.clients.filter(pl.col("round") == 2)
    size = float(one["bytes_up"].mean() + one["bytes_down"].mean())
    link = 1e9 / 8
    for asked in (100, 1_000, 10_000, 100_000, 1_000_000):
        region = max(1, asked // 100)
        rows.append(
            [
                f"{asked:,}",
                f"{asked * each:,.1f}",
                f"{asked * size / 1e9:,.2f}",
                f"{asked * size / link:,.1f}",
                f"{max(region * each, region * size / link):,.1f}",
                f"{max(100 * each, 100 * size / link):,.1f}",
            ]
        )
    return rows


TABLES = {f.__name__: f for f in (rounds, processes, traffic, reference, keys, projection)}


def main(wanted: list[str]) -> None:
    torch.set_num_threads(1)
    to_docs = "--write" in wanted
    wanted = [w for w in wanted if w != "--write"] or list(TABLES)
    for name in wanted:
        rows = TABLES[name]()
        show(Console(width=120), name, rows)
        if to_docs:  # at once: what was measured is not lost with what comes after it
            write_block(PAGE, name, format_table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])

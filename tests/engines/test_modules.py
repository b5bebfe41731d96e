"""Any module: what people use most runs, on the engine that suits it, with the same numbers on both
and for any number of processes; what cannot be is said in one line."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import muster
import tasks as case
from helpers import same_bits
from muster import Method
from muster.base.registry import kinds
from muster.engines.modules import DropoutDraws
from muster.parts import Step
from muster.report.tables import run_table

M, T = muster.methods, muster.tasks
LOCAL = muster.Local(steps=3, batch_size=4, lr=0.1)


class Residual(nn.Module):
    """Attention, GroupNorm and LayerNorm around a way past them."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.group, self.layer = nn.GroupNorm(2, 8), nn.LayerNorm(8)
        self.out = nn.Linear(8, 3)
        self.register_buffer("place", torch.linspace(0, 1, 8), persistent=False)

    def forward(self, x):
        h = self.up(x) + self.place
        h = self.layer(h + self.attend(h[:, None], h[:, None], h[:, None])[0][:, 0])
        return self.out(h + self.group(h))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed = nn.Embedding(case.TOKENS, 4)
        self.cell = kind(4, 5, batch_first=True)
        self.out = nn.Linear(5, case.TOKENS)

    def forward(self, x):
        return self.out(self.cell(self.embed(x))[0])


class Transformer(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(case.TOKENS, 8)
        self.body = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True)
        self.out = nn.Linear(8, case.TOKENS, bias=False)
        self.out.weight = self.embed.weight  # tied

    def forward(self, x):
        mask = torch.full((x.shape[1],) * 2, -1e9, dtype=self.out.weight.dtype).triu(1)
        return self.out(self.body(self.embed(x), src_mask=mask))


class Pooled(nn.Module):
    """No parameters of its own."""

    def forward(self, x):
        return x.unflatten(-1, (2, 2)).mean(-1)


def frozen():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    return model


def half_frozen():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    model[2].weight.requires_grad_(False)
    return model


# name: (module, data, engine that is chosen, why)
MODULES = {
    "attention, norms, residual": (Residual, "multiclass", "stacked", "Residual has no stacked"),
    "lstm": (lambda: Recurrent(nn.LSTM), "next_token", "loop", "LSTM .cell. has no stacked form"),
    "gru": (lambda: Recurrent(nn.GRU), "next_token", "loop", "GRU .cell. has no stacked form"),
    "transformer, tied": (Transformer, "next_token", None, ""),
    "transformer, dropout": (lambda: Transformer(0.2), "next_token", "loop", "draws numbers"),
    "dropout": (
        lambda: nn.Sequential(
            nn.Dropout(0.2), nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3)),
        "multiclass", "stacked", "every layer"),
    "frozen layer": (frozen, "multiclass", "stacked", "every layer"),
    "frozen weight": (half_frozen, "multiclass", "stacked", "every layer"),
    "without parameters of its own": (
        lambda: nn.Sequential(Pooled(), nn.Linear(2, 3)), "multiclass", "stacked", "Pooled has no"),
    "convolution": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(4, 3)),
        "multiclass", "loop", "Conv1d .1. is faster one client at a time"),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)),
        "multiclass", "loop", "running_mean is a statistic"),
}  # fmt: skip


def run_of(name, engine="auto", **more):
    build, kind, _, _ = MODULES[name]
    torch.manual_seed(2)
    task = T.next_token() if kind == "next_token" else T.multiclass()
    how = {"processes": 1, **more}
    return muster.simulate(
        case.of(kind), M.fedavg(), build().double(), 2, LOCAL, task=task, dtype="float64",
        engine=engine, **how,
    )  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules_run_on_the_engine_that_suits_them_and_say_why(name):
    _, _, engine, why = MODULES[name]
    run, loop = run_of(name), run_of(name, "loop")
    if engine is not None:
        assert run.engine == engine
        assert re.search(why, run.facts["engine_why"]), run.facts["engine_why"]
    assert loop.facts["engine_why"] == "it was asked for"
    for key, w in loop.weights.items():
        assert np.abs(run.weights[key] - w).max() < 1e-9, key
    assert run.rounds["loss"][-1] == pytest.approx(loop.rounds["loss"][-1], abs=1e-9)
    assert run.facts["moved"]


@pytest.mark.parametrize("name", ["dropout", "transformer, dropout", "frozen layer"])
def test_any_number_of_processes_gives_the_same_bits(name):
    for engine in ("auto", "loop"):
        assert same_bits(*(run_of(name, engine, processes=n) for n in (1, 2)))


def test_what_dropout_draws_for_a_client_is_what_torch_draws_for_it_alone():
    h = torch.ones(2, 5, 3)
    found = DropoutDraws([7, 8]).drop(h, 0.4, [5, 3])
    for k, n in enumerate((5, 3)):
        torch.manual_seed(7 + k)
        assert torch.equal(found[k, :n], nn.functional.dropout(h[k, :n], 0.4))
    assert not found[1, 3:].any()
    assert torch.equal(DropoutDraws([1]).drop(h, 0.0, [5]), h)


def test_a_forced_stack_takes_what_can_be_and_says_what_cannot():
    stacked = run_of("convolution", "stacked")
    loop = run_of("convolution", "loop")
    for key, w in loop.weights.items():
        assert np.abs(stacked.weights[key] - w).max() < 1e-9
    for name, says in (
        ("lstm", "LSTM .cell. has no stacked form"),
        ("batch norm", "is a statistic that a training pass changes"),
        ("transformer, dropout", "draws numbers for each client by itself"),
    ):
        with pytest.raises(muster.MusterError, match=f"engine: 'stacked': .*{says}"):
            run_of(name, "stacked")


def test_the_table_of_a_run_says_which_engine_and_why():
    said = io.StringIO()
    Console(width=120, file=said).print(run_table(run_of("lstm")))
    assert "loop engine: LSTM (cell) has no stacked form" in said.getvalue()


@pytest.mark.parametrize("name", ["frozen layer", "frozen weight"])
def test_what_is_frozen_neither_moves_nor_travels(name):
    """Bytes are those of what trains, each way, and the frozen numbers are the module's own."""
    run = run_of(name)
    build = MODULES[name][0]
    torch.manual_seed(2)
    model = build().double()
    trains = sum(p.numel() * 8 for p in model.parameters() if p.requires_grad)
    asked = run.rounds["asked"].to_numpy()
    assert (run.rounds["bytes_up"].to_numpy() == asked * trains).all()
    assert (run.rounds["bytes_down"].to_numpy() == asked * trains).all()
    for key, p in model.named_parameters():
        same = np.array_equal(run.weights[key], p.detach().numpy())
        assert same == (not p.requires_grad), key


class Remembers(nn.Module):
    """Adds what it said last."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)
        self.last = 0.0

    def forward(self, x):
        self.last = self.out(x) + 0.5 * self.last
        return self.last


def test_a_module_that_keeps_state_between_batches_is_refused():
    with pytest.raises(muster.MusterError, match="the same row twice gives different outputs") as e:
        muster.simulate(case.of("multiclass"), M.fedavg(), Remembers(), 1)
    assert "\n" not in str(e.value)


def test_several_inputs_are_refused_with_what_to_do():
    x, y = np.ones((4, 3)), [0, 1, 0, 1]
    for several in ((x, np.ones((4, 2))), {"a": x, "b": x}, (torch.ones(4, 3), torch.ones(4, 1))):
        with pytest.raises(muster.MusterError, match=r"train\[0\] x: several inputs; join them"):
            muster.Federation.from_arrays([(several, y)])


def test_outputs_that_are_no_tensor_are_refused():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 3)

        def forward(self, x):
            return self.out(x), x

    with pytest.raises(muster.MusterError, match="it gives tuple, not a tensor of outputs"):
        muster.simulate(case.of("multiclass"), M.fedavg(), Pair(), 1)


class TwoTowers(nn.Module):
    """Tokens and numbers, each by a way of its own."""

    def __init__(self):
        super().__init__()
        self.embed, self.squash = nn.Embedding(case.TOKENS, 4), nn.Linear(3, 4)
        self.out = nn.Linear(8, 2)

    def forward(self, tokens, numbers):
        read = self.embed(tokens).mean(1)
        return self.out(torch.cat([read, torch.tanh(self.squash(numbers))], dim=1))


def test_several_inputs_are_one_row_that_the_module_takes_apart():
    both = muster.models.MultiInput({"tokens": (5,), "numbers": (3,)}, whole=("tokens",))
    draw = np.random.default_rng(0)
    inputs = [
        {"tokens": draw.integers(0, case.TOKENS, (12, 5)), "numbers": draw.normal(size=(12, 3))}
        for _ in range(4)
    ]
    y = [draw.integers(0, 2, 12) for _ in inputs]
    fed = muster.Federation.from_arrays(
        [(both.rows(**x), y) for x, y in zip(inputs, y, strict=True)]
    )
    torch.manual_seed(0)
    own = TwoTowers()
    model = both.model(own)
    x = torch.tensor(both.rows(**inputs[0]))
    tokens, numbers = (torch.tensor(inputs[0][name]) for name in ("tokens", "numbers"))
    assert torch.equal(model.double()(x), own.double()(tokens, numbers))
    assert list(model.state_dict()) == list(own.state_dict())
    runs = [
        muster.simulate(fed, M.fedavg(), both.model(own), 3, LOCAL, engine=engine, dtype="float64")
        for engine in ("stacked", "loop")
    ]
    for name, w in runs[0].weights.items():
        np.testing.assert_allclose(w, runs[1].weights[name], atol=1e-12)
    assert np.abs(runs[0].weights["embed.weight"] - own.embed.weight.detach().numpy()).max() > 1e-4
    said = runs[0].predict(both.rows(**inputs[0]))
    assert len(said) == 12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda j: j.rows(tokens=[[1, 2]]), r"inputs: \['tokens'\]; give tokens, numbers"),
        (lambda j: j.rows(tokens=[[1, 2]], numbers=[[1.0]]), r"numbers: shape \(1, 1\); .*1, 3"),
        (lambda j: j.rows(tokens=[[1.5, 2]], numbers=[[1.0] * 3]), "tokens: float64 .*give tokens"),
        (lambda j: j.split(torch.zeros(1, 4)), "rows of 4 numbers; its inputs have 5"),
        (lambda j: muster.models.MultiInput({"a": (1,)}, ("b",)), "whole: 'b' is no input"),
        (lambda j: muster.models.MultiInput({}), "inputs: none"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(call, message):
    with pytest.raises(muster.MusterError, match=message):
        call(muster.models.MultiInput({"tokens": (2,), "numbers": (3,)}, whole=("tokens",)))


def test_a_layer_with_a_hook_is_not_taken_for_a_plain_one():
    """Old-style weight norm works out the weights in a hook: a stacked form would pass it by."""
    model = nn.Sequential(nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 10))
    model[0].register_forward_hook(lambda module, given, out: 2 * out)
    fed = muster.data.digits(clients=4, priority=2)
    runs = [
        muster.simulate(fed, M.fedavg(), model, 2, LOCAL, engine=engine, dtype="float64")
        for engine in ("auto", "loop")
    ]
    assert "hook" in runs[0].facts["engine_why"]
    for name, w in runs[0].weights.items():
        np.testing.assert_allclose(w, runs[1].weights[name], atol=1e-12)


class Scaled(nn.Module):
    """A parameter and a buffer that are single numbers."""

    def __init__(self):
        super().__init__()
        self.out, self.scale = nn.Linear(4, 3), nn.Parameter(torch.tensor(1.5))
        self.register_buffer("by", torch.tensor(2.0))

    def forward(self, x):
        return self.out(x) * self.scale * self.by


def tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 3))
    model[2].weight = model[0].weight
    return model


class Words(nn.Module):
    """Tokens with a padding token, in a module that is mapped."""

    def __init__(self, **more):
        super().__init__()
        self.embed = nn.Embedding(case.TOKENS, 4, **more)
        self.out = nn.Linear(4, case.TOKENS)

    def forward(self, x):
        return self.out(self.embed(x) + 0.0)


class Centred(nn.Module):
    """Takes the batch's mean away."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(x - x.mean(0))


class Averages(nn.Module):
    """Keeps a mean in a buffer that it replaces, and counts batches in another."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            self.batches += 1
            self.mean = self.mean + (x.mean(0) - self.mean) / self.batches
        return self.out(x - self.mean) / (1 + 0.1 * self.batches)


def plain_norm(**more):
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, **more), nn.Linear(5, 3))


SIMILAR = {  # name: (module, data, what is said of the engine)
    "single numbers": (Scaled, "multiclass", "statistic"),
    "tied": (tied, "multiclass", "a parameter used twice"),
    "padding, stacked": (
        lambda: nn.Sequential(nn.Embedding(case.TOKENS, 4, padding_idx=0), nn.Linear(4, 7)),
        "next_token", "every layer"),
    "padding, mapped": (lambda: Words(padding_idx=0), "next_token", "is mapped"),
    "frequencies": (lambda: Words(scale_grad_by_freq=True), "next_token", "counts the tokens"),
    "across rows": (Centred, "multiclass", "looks across the rows"),
    "batch norm without statistics": (
        lambda: plain_norm(track_running_stats=False), "multiclass", "looks across the rows"),
    "batch norm, mean of all": (lambda: plain_norm(momentum=None), "multiclass", "statistic"),
    "its own averages": (Averages, "multiclass", "statistic"),
    "in place": (
        lambda: nn.Sequential(nn.LeakyReLU(0.5, inplace=True), nn.Linear(4, 3)),
        "multiclass", "every layer"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIMILAR)
def test_engines_and_numbers_of_processes_agree_on_unusual_modules(name):
    build, kind, why = SIMILAR[name]
    task = T.next_token() if kind == "next_token" else T.multiclass()
    fed = case.of(kind)
    before, runs = fed.train.x.clone(), []
    for engine, processes in (("auto", 1), ("loop", 1), ("loop", 2)):
        torch.manual_seed(2)
        local = muster.Local(epochs=1, batch_size=4, lr=0.1)
        runs.append(
            muster.simulate(
                fed, M.fedavg(), build().double(), 2, local, task=task, dtype="float64",
                engine=engine, processes=processes,
            )
        )  # fmt: skip
    assert why in runs[0].facts["engine_why"]
    for run in runs[1:]:
        for key, w in runs[0].weights.items():
            np.testing.assert_allclose(w, run.weights[key], atol=1e-12, err_msg=key)
        assert run.rounds["loss"].to_list() == pytest.approx(runs[0].rounds["loss"].to_list())
    assert runs[0].facts["moved"]
    assert torch.equal(before, fed.train.x), "data stays what it was"
    if "padding" in name:
        start = build().state_dict()
        key = next(iter(start))
        assert not runs[0].weights[key][0].any(), "the padding token's vector does not train"


def test_a_module_that_looks_across_rows_sees_one_client_at_a_time():
    """So a client's loss is the same whoever else is asked."""
    fed, model = case.of("multiclass"), Centred().double()
    run = muster.simulate(fed, M.fedavg(), model, 1, muster.Local(steps=1, lr=0.0), dtype="float64")
    for k in range(fed.n):
        x, y = fed.train.client(k)
        alone = nn.functional.cross_entropy(model(x), y).item()
        assert run.final["train_loss"][k] == pytest.approx(alone, abs=1e-12)


class RemembersInTraining(Remembers):
    def forward(self, x):
        return super().forward(x) if self.training else self.out(x)


def test_a_module_that_keeps_state_in_training_only_is_refused():
    says = "in training the same rows twice give different outputs"
    with pytest.raises(muster.MusterError, match=says) as e:
        muster.simulate(case.of("multiclass"), M.fedavg(), RemembersInTraining(), 1)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("step", ["median", "krum", "centred_clipping", "q_fair"])
def test_robust_steps_and_clipping_take_single_numbers(step):
    fed, torch_like = case.of("multiclass"), muster.optimizers.sgd(momentum=0.5, clip=1.0)
    steps = kinds(Step)
    made = steps[step](q=1.0) if step == "q_fair" else steps[step]()
    local = muster.Local(steps=2, lr=0.1, optimizer=torch_like)
    run = muster.simulate(fed, Method("x", step=made), Scaled(), 1, local)
    assert run.facts["moved"]


class Cut(nn.Module):
    """Nothing leads from what it says back to its parameters."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(x).detach()


def overwriting():
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(True), nn.Dropout(0.5, True), nn.Linear(5, 3))


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("build", [Cut, overwriting])
def test_a_module_without_a_gradient_is_refused_in_one_line(build, processes):
    fed = case.of("multiclass")
    with pytest.raises(muster.MusterError, match="model: torch cannot take its gradient") as told:
        muster.simulate(fed, M.fedavg(), build(), 1, LOCAL, engine="loop", processes=processes)
    assert "\n" not in str(told.value)

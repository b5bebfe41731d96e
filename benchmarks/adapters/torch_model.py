"""A model of the work as a torch module."""

from __future__ import annotations

import torch
from torch import nn
from work import Work


def build(work: Work) -> nn.Sequential:
    """Return the model at the starting point."""
    model = nn.Sequential(*(getattr(nn, kind)(*args) for kind, *args in work.layers))
    model.load_state_dict({name: torch.from_numpy(a) for name, a in work.start.items()})
    return model


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, work: Work) -> None:
    """Take a client's passes over its rows."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=work.lr)
    for _ in range(work.epochs):
        for rows in torch.randperm(len(y)).split(work.batch):
            if len(rows) == 1 and len(y) > 1:
                continue
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()


def to_arrays(model: nn.Module) -> dict:
    return {name: t.detach().numpy().copy() for name, t in model.state_dict().items()}

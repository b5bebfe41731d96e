"""The module of `models.Bag`, in a separate file because its base class loads torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MeanOfTokens(nn.Module):
    """Rows of tokens as the mean of the tokens' vectors; a text of nothing but `pad` is zero.

    It is what `nn.EmbeddingBag` with `padding_idx` gives, in operations that can be done for many
    clients at once.
    """

    def __init__(self, vocabulary: int, width: int, pad: int) -> None:
        super().__init__()
        self.vectors, self.pad = nn.Embedding(vocabulary, width), pad

    def forward(self, tokens: Tensor) -> Tensor:
        counts = (tokens != self.pad).unsqueeze(-1).to(self.vectors.weight.dtype)
        total: Tensor = (self.vectors(tokens) * counts).sum(-2)
        return total / torch.clamp(counts.sum(-2), min=1)

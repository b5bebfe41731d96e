"""Fine-tune a transformer together, and send nothing but its LoRA adapters.

    pip install 'muster-fl[lora,flower]'
    python examples/lora.py

Six clients write sequences of tokens, each in another dialect; two of them are whom the model
is for. All have the same small GPT-2, built from a configuration (a model of the hub:
`GPT2LMHeadModel.from_pretrained("gpt2")` in its place). Its weights are frozen, and `peft` puts a
low-rank adapter next to its attention: only that trains, so only that travels. FedALIGN decides who
helps. The run is simulated, and then repeated over a Flower grid in this process, message by
message; both print the bytes of a round.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import muster
from muster.base.registry import part
from muster.config.experiment import load
from muster.config.network import members_of
from muster.flower.server.app import federate
from muster.flower.testing.in_process import InProcess, write_sites
from muster.models.specs import Spec

TOKENS, PLACES = 32, 12


class Logits(nn.Module):
    """A causal language model as a module with one output."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.body(input_ids=x, use_cache=False).logits
        return logits


@part(Spec, "lora_gpt2")
@dataclass(frozen=True)
class LoraGPT2:
    """GPT-2 from a configuration, frozen, with LoRA adapters of rank `r` that train."""

    width: int = 64
    layers: int = 2
    r: int = 4

    def build(self, of: object, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the same frozen weights for everyone, as a download would be
            config = GPT2Config(
                vocab_size=TOKENS,
                n_positions=PLACES,
                n_embd=self.width,
                n_layer=self.layers,
                n_head=2,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                bos_token_id=0,
                eos_token_id=0,
            )
            adapter = LoraConfig(
                r=self.r,
                lora_alpha=2 * self.r,
                target_modules=["c_attn", "c_proj", "c_fc"],
                fan_in_fan_out=True,
                task_type="CAUSAL_LM",
            )
            return Logits(get_peft_model(GPT2LMHeadModel(config), adapter))


@part(muster.Federation, "dialects")
def dialects(clients: int = 6, rows: int = 40, seed: int = 0) -> muster.Federation:
    """Sequences in which a token mostly follows from the one before, by a rule. Clients 0 to 3
    share a rule, the others have one each; clients 0 and 1 are priority clients."""
    draw = np.random.default_rng(seed)
    rules = [draw.permutation(TOKENS) for _ in range(clients)]

    def write_rows(k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        rule = rules[0 if k < 4 else k]
        text = np.empty((n, PLACES + 1), np.int64)
        text[:, 0] = draw.integers(0, TOKENS, n)
        for i in range(PLACES):
            slips = draw.uniform(size=n) < 0.1
            text[:, i + 1] = np.where(slips, draw.integers(0, TOKENS, n), rule[text[:, i]])
        return text[:, :-1], text[:, 1:]

    train = [write_rows(k, rows) for k in range(clients)]
    test = [write_rows(k, rows) for k in range(clients)]
    return muster.Federation.from_arrays(train, test, priority=[0, 1])


def main() -> None:
    chosen = load(
        {
            "name": "lora",
            "rounds": 4,
            "data": "dialects",
            "model": "lora_gpt2",
            "task": "next_token",
            "method": {"name": "fedalign", "epsilon": 0.3, "warmup": 1},
            "local": {"steps": 10, "batch_size": 20, "lr": 0.02, "optimizer": "adamw"},
        }
    )
    fed = chosen.federation(0)
    module = chosen.spec.build(fed, 0)
    everything = 4 * sum(p.numel() for p in module.parameters())
    trains = 4 * sum(p.numel() for p in module.parameters() if p.requires_grad)
    print(f"a model of {everything / 1e3:.1f} kB, of which {trains / 1e3:.1f} kB train and travel")

    run = muster.run_job(fed, chosen.job)
    print(f"simulated ({run.engine} engine: {run.facts['engine_why']})")
    show(run)

    with tempfile.TemporaryDirectory() as folder:
        sites = write_sites(fed, Path(folder))
        members = members_of(fed, [site.key.decode() for site in sites])
        listed = replace(chosen, members=members)
        real = federate(InProcess(sites), listed, Path(folder) / "run", say=lambda line: None)
    print("over a Flower grid")
    show(real)
    apart = max(float(np.abs(real.weights[n] - w).max()) for n, w in run.weights.items())
    print(f"largest difference between the two models: {apart:.1e}")


def show(run: muster.Run) -> None:
    """A line for each round."""
    for row in run.rounds.iter_rows(named=True):
        print(
            f"  round {row['round']}: test perplexity {row['test_perplexity']:6.2f}, others "
            f"admitted {row['admitted_nonpriority']}, up {row['bytes_up'] / 1e3:.1f} kB from "
            f"{row['joined']} clients, down {row['bytes_down'] / 1e3:.1f} kB to {row['asked']}"
        )


if __name__ == "__main__":
    main()

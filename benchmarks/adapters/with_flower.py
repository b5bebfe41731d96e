"""Flower's simulation: two client actors, a core each."""

import sys

import flwr
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_model import build, train
from work import Clock, read, write

LINE = sys.argv[1:]  # actors are other processes, with other arguments


class Client(NumPyClient):
    def __init__(self, k: int) -> None:
        self.work = read(*LINE)
        self.k = k

    def fit(self, parameters, config):
        torch.set_num_threads(1)
        model = build(self.work)
        names = list(model.state_dict())
        state = {n: torch.as_tensor(a) for n, a in zip(names, parameters, strict=True)}
        model.load_state_dict(state)
        x, y = (torch.tensor(a) for a in self.work.client(self.k))
        train(model, x, y, self.work)
        return [t.numpy() for t in model.state_dict().values()], len(y), {}


def client_app(line):
    def make(context: Context):
        LINE[:] = line
        return Client(int(context.node_config["partition-id"])).to_client()

    return ClientApp(make)


if __name__ == "__main__":
    work, clock = read(), Clock()
    last = {}

    def evaluate(server_round, parameters, config):
        last["model"] = parameters
        clock.mark()

    def server(context: Context) -> ServerAppComponents:
        asked = work.asked.shape[1]
        strategy = FedAvg(
            fraction_fit=asked / work.n,
            fraction_evaluate=0.0,
            min_fit_clients=asked,
            min_available_clients=work.n,
            initial_parameters=ndarrays_to_parameters(list(work.start.values())),
            evaluate_fn=evaluate,
        )
        return ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=len(work.asked))
        )

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(
        ServerApp(server_fn=server), client_app(list(LINE)), work.n, backend_config=resources
    )
    final = dict(zip(work.start, last["model"], strict=True))
    write(work, clock, final, flwr.__version__)

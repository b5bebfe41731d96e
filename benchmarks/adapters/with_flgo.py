"""FLGo's own FedAvg in one process, on a task that lies in memory in place of its files."""

import json
import sys
import tempfile
import types
from importlib.metadata import version
from pathlib import Path

import flgo
import flgo.algorithm.fedavg as fedavg
import numpy as np
import torch
from flgo.benchmark.base import BasicTaskPipe
from flgo.benchmark.toolkits.cv.classification import GeneralCalculator
from flgo.experiment.logger import BasicLogger
from torch_model import build, to_arrays
from work import Clock, read, write

work, clock = read(), Clock()
names = [f"Client{k}" for k in range(work.n)]


class Module(flgo.utils.fmodule.FModule):
    def __init__(self):
        super().__init__()
        self.layers = build(work)

    def forward(self, x):
        return self.layers(x)


class TaskPipe(BasicTaskPipe):
    def load_data(self, option):
        x, y = torch.from_numpy(np.array(work.x)), torch.from_numpy(np.array(work.y))
        parts = zip(names, work.offsets, work.offsets[1:], strict=False)
        return {k: {"train": torch.utils.data.TensorDataset(x[a:b], y[a:b])} for k, a, b in parts}


class Server(fedavg.Server):
    def sample(self):
        return work.asked[self.current_round - 1].tolist()

    def iterate(self):
        super().iterate()
        clock.mark()


class Logger(BasicLogger):
    def initialize(self):
        pass

    def log_once(self):
        pass


def init_global_module(party):
    if isinstance(party, Server):
        party.model = Module()


# A benchmark is a module with a `core`; it finds this one where its own would be.
core = types.ModuleType("work_task.core")
core.TaskPipe, core.TaskCalculator = TaskPipe, GeneralCalculator
sys.modules |= {"work_task": types.ModuleType("work_task"), "work_task.core": core}
algorithm = types.SimpleNamespace(__name__="fedavg", Server=Server, Client=fedavg.Client)
model = types.SimpleNamespace(__name__="work", init_global_module=init_global_module)
with tempfile.TemporaryDirectory() as folder:
    task = Path(folder)
    (task / "log").mkdir()
    (task / "record").mkdir()
    (task / "info").write_text(json.dumps({"benchmark": "work_task"}))
    (task / "data.json").write_text(json.dumps({"client_names": names}))
    option = {
        "num_rounds": len(work.asked),
        "num_epochs": work.epochs,
        "batch_size": work.batch,
        "learning_rate": work.lr,
        "learning_rate_decay": 1.0,
        "train_holdout": 0.0,
        "eval_interval": -1,
        "no_tqdm": True,
        "torch_num_threads": int(work.mode),
        "log_level": "ERROR",
    }
    runner = flgo.init(folder, algorithm, option, model=model, Logger=Logger)
    clock.mark()
    runner.run()
write(work, clock, to_arrays(runner.model.layers), version("flgo"))

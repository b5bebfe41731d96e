"""pfl-research's own FedAvg in one process."""

import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.version import __version__
from torch_model import build, to_arrays
from work import Clock, read, write

work, clock = read(), Clock()
if any(layer[0].startswith("BatchNorm") for layer in work.layers):
    sys.exit("its models send parameters alone, without the statistics of batch norm")
torch.set_num_threads(int(work.mode))
module = build(work)
module.loss = lambda x, y, eval=False: torch.nn.functional.cross_entropy(module(x), y)
module.metrics = lambda x, y, eval=True: {}
model = PyTorchModel(
    model=module,
    local_optimizer_create=torch.optim.SGD,
    central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
)
x, y = torch.from_numpy(np.array(work.x)), torch.from_numpy(np.array(work.y))


def rows_of(k):
    rows = slice(int(work.offsets[k]), int(work.offsets[k + 1]))
    order = torch.randperm(int(work.sizes[k]))  # it does not shuffle by itself
    return Dataset(raw_data=[x[rows][order], y[rows][order]], user_id=str(k))


class Rounds(TrainingProcessCallback):
    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        clock.mark()
        return False, Metrics()


everyone = iter(work.asked.reshape(-1).tolist())
backend = SimulatedBackend(
    training_data=FederatedDataset(rows_of, lambda: next(everyone)), val_data=None
)
clock.mark()
FederatedAveraging().run(
    backend=backend,
    model=model,
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=len(work.asked),
        evaluation_frequency=10**9,
        train_cohort_size=work.asked.shape[1],
        val_cohort_size=None,
    ),
    model_train_params=NNTrainHyperParams(
        local_learning_rate=work.lr,
        local_num_epochs=work.epochs,
        local_batch_size=work.batch,
    ),
    model_eval_params=NNEvalHyperParams(local_batch_size=None),
    callbacks=[Rounds()],
)
write(work, clock, to_arrays(module), __version__)

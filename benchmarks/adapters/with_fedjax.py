"""FedJAX's own FedAvg, by its `jit` backend: `pmap` calls what JAX 0.10 has removed."""

import sys
from itertools import chain

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from work import Clock, read, write

jax.tree_map = jax.tree_util.tree_map  # fedjax 0.0.17 calls it by its earlier name
work, clock = read(), Clock()
linear = [f"{i}." for i, layer in enumerate(work.layers) if layer[0] == "Linear"]
if any(layer[0] not in ("Linear", "ReLU", "Flatten") for layer in work.layers):
    sys.exit("its FedAvg keeps no statistics of batch norm")


def loss(params, batch, rng):
    z = batch["x"].reshape(len(batch["x"]), -1)
    for i, name in enumerate(linear):
        z = z @ params[name + "weight"].T + params[name + "bias"]
        z = jax.nn.relu(z) if i < len(linear) - 1 else z
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(z), batch["y"][:, None], 1))


fedjax.set_for_each_client_backend(work.mode)
algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    jax.grad(loss),
    fedjax.optimizers.sgd(work.lr),
    fedjax.optimizers.sgd(1.0),
    fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch, num_epochs=work.epochs),
)
state = algorithm.init({name: jnp.asarray(a) for name, a in work.start.items()})
x, y = np.array(work.x), np.array(work.y).astype(np.int32)


class Rows(fedjax.ClientDataset):
    """A client's rows, batched epoch by epoch as the others do: its own batches run on into the
    next epoch, which are fewer steps."""

    def shuffle_repeat_batch(self, hparams):
        once = hparams.replace(num_epochs=1)
        epochs = (super(Rows, self).shuffle_repeat_batch(once) for _ in range(hparams.num_epochs))
        return chain.from_iterable(epochs)


def client(k, key):
    rows = slice(int(work.offsets[k]), int(work.offsets[k + 1]))
    return str(k), Rows({"x": x[rows], "y": y[rows]}), key


clock.mark()
for t, asked in enumerate(work.asked):
    keys = jax.random.split(jax.random.PRNGKey(t), len(asked))
    state, _ = algorithm.apply(
        state, [client(k, key) for k, key in zip(asked.tolist(), keys, strict=True)]
    )
    jax.block_until_ready(state.params)
    clock.mark()
write(work, clock, {name: np.asarray(a) for name, a in state.params.items()}, "0.0.17")

"""muster, by its own simulator."""

import numpy as np
import torch
from torch_model import build
from work import Clock, read, write

import muster
from muster.federation import Federation, RaggedRows
from muster.methods import Full, Sample

if __name__ == "__main__":
    work, clock = read(), Clock()
    rows = RaggedRows(
        torch.from_numpy(np.array(work.x)), torch.from_numpy(np.array(work.y)), work.offsets
    )
    fed = Federation.from_rows(rows, classes=work.classes)
    asked = work.asked.shape[1]
    clock.mark()
    run = muster.simulate(
        fed,
        muster.methods.fedavg(Full() if asked == work.n else Sample(asked)),
        build(work),
        len(work.asked),
        muster.Local(epochs=work.epochs, batch_size=work.batch, lr=work.lr),
        evaluate_every=0,
        on_round=lambda row: clock.mark(),
    )
    # The last round measures the model on everybody.
    final = dict(run.weights)
    write(work, clock, final, muster.__version__, last=-1)

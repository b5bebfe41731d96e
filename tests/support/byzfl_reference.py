"""What byzfl 0.0.11 makes of some vectors, written down so that tests need not install it.

    pip install byzfl==0.0.11
    python tests/support/byzfl_reference.py

writes byzfl-0.0.11.json next to this file: vectors, and the result of every rule we also have.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

PLACE = Path(__file__).with_name("byzfl-0.0.11.json")
F = 3


def main() -> None:
    from byzfl.aggregators import aggregators as rules
    from byzfl.aggregators import preaggregators as before
    from byzfl.attacks import attacks

    draw = np.random.default_rng(15)
    x = draw.normal(size=(11, 7))
    x[:F] = 40 * draw.normal(size=(F, 7)) + 20
    even = x[:10]
    clipping = rules.CenteredClipping(L=3, tau=2.0)
    results = {
        "median": rules.Median()(x),
        "median of ten": rules.Median()(even),
        "trimmed": rules.TrMean(F)(x),
        "geometric": rules.GeometricMedian(nu=0.1, T=5)(x),
        "krum": rules.Krum(F)(x),
        "multi-krum": rules.MultiKrum(F)(x),
        "clipping": clipping(x),
        "clipping again": clipping(x + 0.5),
        "mixed": before.NNM(F)(x),
        "clipped": before.Clipping(c=2.5)(x.copy()),
        "alie": attacks.ALittleIsEnough(tau=1.5)(x),
        "ipm": attacks.InnerProductManipulation(tau=2.0)(x),
    }
    made = {"x": x.tolist(), **{name: np.asarray(v).tolist() for name, v in results.items()}}
    PLACE.write_text(json.dumps(made, indent=0))


if __name__ == "__main__":
    main()

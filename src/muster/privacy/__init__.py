"""Privacy of clients: differential privacy of what a run releases, and secure sums.

accountant     epsilon of releases, exactly       account   releases so far, charged on disk
gaussian       the settings, [privacy]            noise     of the operating system, whole numbers
contributions  what a client adds to a sum        refusals  what cannot be private together
fixed_point    contributions as whole numbers     masks, committee   secure sums

For rows: row_noise (DP-SGD's noise in a client), sampled_accountant (what it costs), row_refusals.
"""

from .accountant import epsilon, noise_for
from .gaussian import Gaussian, Privacy

__all__ = ["Gaussian", "Privacy", "epsilon", "noise_for"]

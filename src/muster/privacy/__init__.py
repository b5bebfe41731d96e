"""Privacy of clients: differential privacy of what a run releases, and secure sums.

accountant   epsilon of releases, exactly            gaussian   the settings, [privacy]
refusals     what cannot be private together         fixed_point, masks, committee   secure sums
"""

from .accountant import epsilon, noise_for
from .gaussian import Gaussian, Privacy

__all__ = ["Gaussian", "Privacy", "epsilon", "noise_for"]

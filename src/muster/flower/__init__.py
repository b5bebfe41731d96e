"""A real federation over Flower: the rounds of the simulator, on clients across a network.

Needs the extra: `pip install 'muster-fl[flower]'`.
"""

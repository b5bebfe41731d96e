"""A real federation over Flower: the parts of the core, on clients across a network.

Needs the extra: `pip install 'muster-fl[flower]'`.
"""

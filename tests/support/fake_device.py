"""A GPU that is not there: tensors that say they are on `cuda:0` and compute on the processor.

Inside `FakeGPU()` every operation on them is checked as a GPU would: tensors of two devices do not
mix (but for single numbers and the indices of a look-up), a generator must be of the same device,
and nothing leaves without a copy. Copies and waits for the device are counted by where they are.
"""

from __future__ import annotations

import collections
import contextlib
import linecache
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
# Operations that take an index or a source from another device.
MIXED = {aten.index, aten.index_put_, aten.index_put, aten._index_put_impl_, aten.copy_}
SYNC = {aten._local_scalar_dense, aten.nonzero, aten.equal, aten.masked_select, aten._unique2}


class FakeTensor(torch.Tensor):
    """A tensor on the GPU that is not there; `held` has its numbers."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, device="meta",
        )  # fmt: skip

    def __init__(self, held):
        self.held = held

    @property
    def device(self):
        return CUDA

    @property
    def is_cuda(self):
        return True

    def numpy(self, *args, **more):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")

    def data_ptr(self):
        return self.held.data_ptr()

    def tolist(self):
        return self.cpu().tolist()

    def __repr__(self):
        return f"FakeTensor({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} outside the fake GPU")


class FakeGPU(TorchDispatchMode):
    """The rules of a GPU; `copies` counts by kind ("in", "out", "wait") and place in the source."""

    def __init__(self):
        super().__init__()
        self.copies = collections.Counter()

    def note(self, kind):
        frame = sys._getframe(2)
        while frame is not None and "/muster/" not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is None:
            self.copies[kind, "a test"] += 1
            return
        file = frame.f_code.co_filename
        line = linecache.getline(file, frame.f_lineno).strip()
        self.copies[kind, f"{file.rpartition('/muster/')[2]}: {line}"] += 1

    def total(self, *kinds):
        return sum(n for (kind, _), n in self.copies.items() if kind in kinds)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        fake = [x for x in given if isinstance(x, FakeTensor)]
        packet = func.overloadpacket
        if packet is torch.ops.prim.device:
            return CUDA
        target = kwargs.get("device")
        if packet is aten._to_copy and target is None:
            target = CUDA if fake else torch.device("cpu")
        there = ("cuda", "meta")  # meta: where torch itself believes these tensors to be
        place = torch.device(target).type in there if target is not None else bool(fake)
        if target is not None and torch.device(target).type in there:
            kwargs["device"] = torch.device("cpu")
        elif target is not None:
            kwargs["device"] = target
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if fake and packet is aten.copy_:
            to, source = (isinstance(x, FakeTensor) for x in args[:2])
            if to != source:
                self.note("in" if to else "out")
        elif packet is aten._to_copy:
            if place != bool(fake):
                self.note("in" if place else "out")
        elif fake:
            other = [x for x in given if not isinstance(x, FakeTensor) and x.dim() > 0]
            if other and packet in MIXED and isinstance(args[0], FakeTensor):
                self.note("in")
            elif other:
                shapes = [tuple(x.shape) for x in given]
                raise RuntimeError(f"{func}: tensors on cuda:0 and cpu, {shapes}")
            generator = kwargs.get("generator")
            if generator is not None and generator.device.type != "cuda":
                raise RuntimeError(f"{func}: expected a cuda generator, got one of the cpu")
        if fake and packet in SYNC:
            self.note("wait")
            place = place and packet is not aten.equal
        inplace = {id(x.held): x for x in fake}

        def unwrap(x):
            return x.held if isinstance(x, FakeTensor) else x

        found = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs))

        def wrap(x):
            if not isinstance(x, torch.Tensor) or not place:
                return x
            return inplace.get(id(x)) if id(x) in inplace else FakeTensor(x)

        return tree_map(wrap, found)


@contextlib.contextmanager
def fake_gpu():
    """A fake GPU, as far as muster asks torch for one."""
    numbers = torch.get_rng_state
    stand_ins = {
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "mem_get_info": lambda device=None: (2**34, 2**34),
        "get_rng_state": lambda device=None: numbers(),
        "set_rng_state": lambda state, device=None: None,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in stand_ins.items():
            patch.setattr(torch.cuda, name, stand_in)
        with FakeGPU() as gpu:
            yield gpu

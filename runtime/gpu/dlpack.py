"""Tensors in memory of a GPU, which DLPack hands over without copies, in and out.

Source: the C structures of DLPack (dmlc/dlpack, `dlpack.h`) and its protocol for Python, in the
Python array API standard.
"""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import InputError
from .driver import GpuBuffer, GpuDriver

CPU, CUDA, OPENCL = 1, 2, 4
"""Types of devices."""

HOST_TYPES = (CPU, 3)
"""Devices whose memory this processor reads: its own, and what CUDA has pinned."""

KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}
"""Codes of the kinds of NumPy's types."""

ALIGNED_BYTES = 16
"""Alignment of the memory that kernels read, in vectors."""

NAME, USED = b"dltensor", b"used_dltensor"
"""Names of a capsule before and after its tensor is taken over."""


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("number", ctypes.c_int32)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


def _python(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_make = _python(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _python("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# A destructor gets a capsule that must not be counted again, so it stays an address.
_is_valid = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_at = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_exported: dict[int, tuple[Any, ...]] = {}
"""Objects that exported structures need, by address, until their consumers release them."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _release(address: int) -> None:
    _exported.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule: int) -> None:
    if _is_valid(capsule, NAME):  # nobody took it over
        _exported.pop(_pointer_at(capsule, NAME), None)


@dataclass(frozen=True, slots=True)
class GpuTensor:
    """A contiguous tensor in memory of a GPU, as inputs and outputs of a session may be.

    An output shows the session's own memory: the session's next run changes it.

    Parameters
    ----------
    driver
        The GPU.
    buffer
        The memory.
    dtype, shape
        The elements.
    owner
        Frees the memory, once nobody uses it.
    """

    driver: GpuDriver
    buffer: GpuBuffer
    dtype: np.dtype
    shape: tuple[int, ...]
    owner: Any = None

    def reshape(self, shape: Sequence[int]) -> "GpuTensor":
        """The same elements in another shape."""
        assert math.prod(shape) == math.prod(self.shape)
        return replace(self, shape=tuple(shape))

    def numpy(self) -> np.ndarray:
        """A copy in memory of the host."""
        array = np.empty(self.shape, self.dtype)
        self.driver.copy_out(self.buffer, array)
        self.driver.synchronise()
        return array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.driver.dlpack_device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the memory, and let `stream` wait for the work that fills it.

        Raises
        ------
        BufferError
            Another device, or a copy, is asked for.
        """
        del max_version  # the structure without a version is allowed for all
        if copy or dl_device not in (None, self.driver.dlpack_device):
            raise BufferError(f"a tensor of `gpu:{self.driver.name}` is shared in place only")
        self.driver.let_wait(stream)
        address, offset = self.driver.address_of(self.buffer)
        rank = len(self.shape)
        shape = (ctypes.c_int64 * rank)(*self.shape)
        managed = _Managed(
            _Tensor(
                address,
                _Device(*self.driver.dlpack_device),
                rank,
                _Type(KINDS[self.dtype.kind], 8 * self.dtype.itemsize, 1),
                shape,
                None,
                offset,
            ),
            None,
            _release,
        )
        place = ctypes.addressof(managed)
        _exported[place] = managed, shape, self
        return _make(place, NAME, ctypes.cast(_drop, ctypes.c_void_p))


class _Adopted:
    """A tensor of another library, which is released when nobody uses it any longer."""

    def __init__(self, address: int) -> None:
        self.managed = _Managed.from_address(address)
        self._address = address

    def __del__(self) -> None:
        if self.managed.deleter:
            self.managed.deleter(self._address)


def adopt(name: str, given: Any, driver: GpuDriver) -> GpuTensor | None:
    """An input in memory of the GPU, without a copy; None where it is in memory of the host.

    Raises
    ------
    InputError
        It is on another device, is not contiguous, or has a type or a place that kernels lack.
    """
    device = tuple(map(int, given.__dlpack_device__()))
    if device != driver.dlpack_device:
        if device[0] in HOST_TYPES:
            return None
        raise InputError(
            f"input `{name}`: expected a tensor in memory of the host or of `gpu:{driver.name}`, "
            f"device {driver.dlpack_device} of DLPack, got one on device {device}; move it"
        )
    stream = driver.dlpack_stream
    capsule = given.__dlpack__() if stream is None else given.__dlpack__(stream=stream)
    owner = _Adopted(_pointer(capsule, NAME))
    _rename(capsule, USED)
    tensor = owner.managed.tensor
    shape = tuple(tensor.shape[: tensor.rank])
    dtype = _dtype(name, tensor.type)
    _check_contiguous(name, tensor, shape)
    size = math.prod(shape) * dtype.itemsize
    first = tensor.byte_offset + (tensor.data or 0 if device[0] != OPENCL else 0)
    if first % ALIGNED_BYTES:
        raise InputError(
            f"input `{name}`: expected a tensor that begins at a multiple of {ALIGNED_BYTES} "
            "bytes, got one that does not; copy it: `tensor.clone()`"
        )
    buffer = driver.foreign(tensor.data or 0, tensor.byte_offset, size)
    return GpuTensor(driver, buffer, dtype, shape, owner)


def _dtype(name: str, kind: _Type) -> np.dtype:
    found = next((one for one, code in KINDS.items() if code == kind.code), None)
    if found is None or kind.lanes != 1 or kind.bits % 8:
        raise InputError(
            f"input `{name}`: expected integers, floats or bools, got type {kind.code} of DLPack "
            f"with {kind.bits} bits; convert it"
        )
    return np.dtype(f"{found}{kind.bits // 8}")


def _check_contiguous(name: str, tensor: _Tensor, shape: tuple[int, ...]) -> None:
    if not tensor.strides:
        return
    strides = tuple(tensor.strides[: tensor.rank])
    plain = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    if any(n > 1 and s != p for n, s, p in zip(shape, strides, plain, strict=True)):
        raise InputError(
            f"input `{name}`: expected a contiguous tensor, got {list(shape)} with strides "
            f"{list(strides)}; call `contiguous()`"
        )

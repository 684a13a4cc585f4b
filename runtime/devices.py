"""All devices, and `open_device`.

`reference` executes the definition of the instructions. `sim` combines the fast functional
simulator with the exact timing model. `rtl` simulates the hardware itself, and `gate` its netlist
for an FPGA. An address opens a board, real or virtual, or any of these on another machine, where an
agent lends it. All leave the same bytes in main memory.
`host` and `gpu` have no accelerator: this computer runs the whole network, or its GPU.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from typing_extensions import override

from ..argument_types import checked
from ..errors import DeviceError, did_you_mean
from ..isa.configuration import DEFAULT, SCRATCHPADS, Configuration, Memory
from ..isa.memory_model import MemoryModel
from ..isa.semantics import Machine
from ..sim.native_functional import NativeMachine, functional_machine
from ..sim.timing import Timer
from ..wording import counted
from .device import Device, LoadedProgram, Result

if TYPE_CHECKING:
    from ..compiler.module import Module
    from ..sim.rtl import RtlCore
    from .host import HostSide


class ReferenceDevice(Device):
    """The executable semantics in program order, without time."""

    name = "reference"

    def __init__(self, configuration: Configuration, memory: MemoryModel) -> None:
        super().__init__(configuration, memory)
        self._machine: Machine | None = None

    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        self._machine = Machine(self.configuration, dram)
        self._machine.run(program.instructions)
        return Result(device=self.name, dram=dram)

    @override
    def scratchpads(self) -> dict[Memory, np.ndarray]:
        if self._machine is None:
            return {
                memory: np.zeros(self.configuration.size_bytes(memory), dtype=np.uint8)
                for memory in SCRATCHPADS
            }
        return {memory: self._machine.memories[memory].copy() for memory in SCRATCHPADS}


class SimDevice(ReferenceDevice):
    """The fast functional simulator with the exact timing model, compiled if there is a compiler.

    Cycles, spans and counters equal those of the RTL, unless the memory stalls at random. They do
    not depend on data, so they are computed once per program.
    """

    name = "sim"

    def __init__(self, configuration: Configuration, memory: MemoryModel) -> None:
        super().__init__(configuration, memory)
        self._machine_type = functional_machine(configuration)
        self._timed: WeakKeyDictionary[LoadedProgram, Result] = WeakKeyDictionary()

    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        machine = self._machine = self._machine_type(self.configuration, dram)
        if isinstance(machine, NativeMachine):
            machine.run_words(program.words)
        else:
            machine.run(program.instructions)
        if program not in self._timed:
            self._timed[program] = self._time(program)
        return replace(self._timed[program], dram=dram)

    def _time(self, program: LoadedProgram) -> Result:
        timer = Timer(program.instructions, self.configuration, program.words)
        timing = timer.run(self.memory)
        return Result(
            device=self.name,
            dram=np.empty(0, dtype=np.uint8),
            cycles=timing.cycles,
            exact=self.memory.stall_probability == 0,
            spans=timing.spans,
            counters=timing.counters,
        )


class HardwareDevice(Device):
    """Hardware under Verilator, with exact cycles; a device opens the core that it simulates."""

    _core: "RtlCore"

    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        run = self._core.run(program.words, dram, program.instructions)
        return Result(
            device=self.name,
            dram=dram,
            cycles=run.cycles,
            exact=True,
            spans=run.spans(program.instructions),
            counters=run.counters,
        )

    @override
    def scratchpads(self) -> dict[Memory, np.ndarray]:
        return self._core.scratchpads()

    @override
    def _close(self) -> None:
        self._core.close()


class RtlDevice(HardwareDevice):
    """The Verilated hardware.

    Parameters
    ----------
    trace : Path or str or None
        File for an FST waveform, which makes runs much slower; None for no waveform.
    max_cycles : int
        A run stops with an error after this many cycles.
    """

    name = "rtl"
    options = ("trace", "max_cycles")

    def __init__(
        self,
        configuration: Configuration,
        memory: MemoryModel,
        *,
        trace: Path | str | None = None,
        max_cycles: int = 1 << 40,
    ) -> None:
        super().__init__(configuration, memory)
        # Imported here: only hardware needs it.
        from ..sim.rtl import RtlCore

        self._core = RtlCore(configuration, memory, trace=trace, max_cycles=max_cycles)


class GateDevice(HardwareDevice):
    """The Verilated netlist of the hardware, synthesised for an FPGA.

    Its scratchpads lie in many memory cells. They cannot be read, and each run begins with the
    power-up of the machine, after which they are zero.

    Parameters
    ----------
    technology : str
        The cells of the netlist: `ecp5`, `gowin` or `ice40`.
    max_cycles : int
        A run stops with an error after this many cycles.
    """

    name = "gate"
    options = ("technology", "max_cycles")

    def __init__(
        self,
        configuration: Configuration,
        memory: MemoryModel,
        *,
        technology: str = "ecp5",
        max_cycles: int = 1 << 40,
    ) -> None:
        super().__init__(configuration, memory)
        # Imported here: only this device needs synthesis.
        from ..sim.gate.build import build_gates
        from ..sim.gate.cell_models import find_cells
        from ..sim.rtl import RtlCore

        cells = find_cells(technology)
        library = build_gates(configuration, cells, cells.multipliers)
        self._core = RtlCore(configuration, memory, max_cycles=max_cycles, library=library)

    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        self._core.power_up()
        return super()._run(program, dram)


class HostDevice(Device):
    """A device without an accelerator, for networks that run entirely on the host."""

    name = "host"
    has_accelerator = False

    def _run(self, program: LoadedProgram, dram: np.ndarray) -> Result:
        raise DeviceError(
            f"device `{self.name}`: expected a network without segments, got a program of "
            f"{counted(len(program.instructions), 'instruction')}; compile the model with "
            '`placement=Placement("host")`, or open another device'
        )

    def scratchpads(self) -> dict[Memory, np.ndarray]:
        """Return an empty dictionary, because there is no accelerator."""
        return {}


TF32 = "tf32"
"""Option of a GPU's address."""


class GpuDevice(HostDevice):
    """A GPU, for networks without segments; this processor runs what is no kernel.

    Parameters
    ----------
    address : str
        `gpu`, or `gpu:DRIVER` for one of `gpu.drivers.DRIVERS`; with `?tf32`, products of float32
        may run on tensor cores, which round their operands to TF32, of 11 significant bits.
    """

    name = "gpu"

    def __init__(self, configuration: Configuration, memory: MemoryModel, address: str) -> None:
        super().__init__(configuration, memory)
        # Imported here: only a GPU needs its kernels and its drivers.
        from .gpu.drivers import open_driver

        driver, _, option = address.partition("?")
        if option not in ("", TF32):
            raise DeviceError(
                f"device `{address}`: unknown option `{option}`; expected `?{TF32}`, or none"
            )
        self.driver = open_driver(driver.partition(":")[2] or None)
        self.name = f"{GpuDevice.name}:{self.driver.name}"
        if option:
            self._round_to_tf32()

    def _round_to_tf32(self) -> None:
        if not self.driver.target.instructions:
            self.driver.close()
            raise DeviceError(
                f"device `{self.name}`: there are no tensor cores; leave `?{TF32}` out"
            )
        self.driver.target = replace(self.driver.target, tf32=True)
        self.name += f"?{TF32}"
        self.tolerance = 2.0**-8

    @override
    def host_side(self, module: "Module", **options: Any) -> "HostSide":
        from .gpu.network import GpuSide

        return GpuSide(module, self.driver, **options)

    @override
    def _close(self) -> None:
        self.driver.close()


DEVICES: dict[str, type[Device]] = {
    device.name: device
    for device in (ReferenceDevice, SimDevice, RtlDevice, GateDevice, HostDevice, GpuDevice)
}
"""Devices by name."""

ZYNQ = "zynq://"

SCHEMES = "serial://", "tcp://", ZYNQ
"""Beginnings of the addresses of boards."""

BESIDE = "+"
"""Sign before the GPU that runs the host's steps, in the name of a device."""

REMOTE = "remote://"
"""Beginning of the addresses of devices that agents lend."""


def is_address(name: str) -> bool:
    """Whether a device is named by an address."""
    return name.startswith((*SCHEMES, REMOTE))


def without_gpu(name: str) -> tuple[str, str]:
    """Return the name of a device, and of the GPU beside it; "" if it names none."""
    found = re.search(rf"{re.escape(BESIDE)}({GpuDevice.name}([:?].*)?)$", name)
    return (name[: found.start()], found[1]) if found else (name, "")


def kind_of(name: str) -> str:
    """Return the name in `DEVICES` of a device, here or elsewhere; or a board's address."""
    name, _ = without_gpu(name)
    if not name.startswith(REMOTE):
        return GpuDevice.name if re.match(rf"{GpuDevice.name}[:?]", name) else name
    device = name.partition("?")[0].rpartition("/")[2]
    return device if device in DEVICES else name


def has_accelerator(name: str) -> bool:
    """Whether a device runs programs of an accelerator."""
    kind = kind_of(name)
    return kind not in DEVICES or DEVICES[kind].has_accelerator


def is_board(name: str) -> bool:
    """Whether a device is named by a board's address, here or on another machine."""
    return is_address(name) and kind_of(name) not in DEVICES


def own_hardware(name: str) -> str:
    """Return the end of a message for those who call the processor or the GPU as others do."""
    if name.lower() == "cpu":
        return "; `host` is this computer's processor"
    return "; `gpu` is this computer's GPU" if name.lower() in ("cuda", "opencl") else ""


@checked("open_device", DeviceError)
def open_device(
    name: str,
    configuration: Configuration | None = None,
    memory: MemoryModel | None = None,
    **options,
) -> Device:
    """Open a device by name.

    Parameters
    ----------
    name : str
        `reference`, `sim`, `rtl`, `gate`, `host`, `gpu`, `gpu:DRIVER`, `gpu:DRIVER?tf32`, or a
        board's address: `serial:///dev/ttyUSB0?baud=3000000`, `tcp://HOST:PORT`, or on a Zynq board
        `zynq:///PATH/BOARD.bit`. `remote://AGENT/DEVICE` is a device that an agent lends; see
        docs/guide/agents.md. Behind any that has an accelerator, `+gpu` lets a GPU run the host's
        steps, as in `sim+gpu` or `rtl+gpu:opencl`.
    configuration : Configuration or None
        Configuration of the machine; only `host` and `gpu` need none.
    memory : MemoryModel or None
        The model of main memory; None for the default. A board has its own.
    **options
        For `rtl`: `trace` (path of an FST waveform), `max_cycles`. For `gate`: `technology`
        (`ecp5`, `gowin` or `ice40`), `max_cycles`.

    Raises
    ------
    DeviceError
        If the device or an option is unknown, or a board cannot be reached or has another
        configuration.
    ToolError
        If Verilator or a C++ compiler is missing, for `rtl` and `gate`; or Yosys, for `gate`.
    """
    name, gpu = without_gpu(name)
    if gpu:
        if not has_accelerator(name):
            raise DeviceError(
                f"device `{name}{BESIDE}{gpu}`: expected a device with an accelerator before "
                f"`{BESIDE}`, got `{name}`; open `{gpu}` alone"
            )
        device = open_device(name, configuration, memory, **options)
        try:
            device.gpu = GpuDevice(device.configuration, device.memory, gpu)
        except BaseException:
            device.close()
            raise
        device.name += BESIDE + device.gpu.name
        device.tolerance = device.gpu.tolerance
        return device
    kind = kind_of(name)
    if kind not in DEVICES and not is_address(name):
        raise DeviceError(
            f"device `{name}`: unknown; expected one of {', '.join(DEVICES)}, or the address of a "
            "board, `serial://...`, `tcp://...` or `zynq://...`, or `remote://AGENT/DEVICE`"
            + (f"; did you mean `serial://{name}`?" if name.startswith("/dev/") else "")
            + (own_hardware(name) or did_you_mean(name, DEVICES))
        )
    if configuration is None:
        if has_accelerator(name):
            raise DeviceError(
                f"device `{name}`: expected the configuration of its machine, got none; give that "
                f'of the module, `open_device("{name}", module.configuration)`'
            )
        configuration = DEFAULT
    known = DEVICES[kind].options if kind in DEVICES else ()
    for option in options:
        if option not in known:
            raise DeviceError(
                f"device `{name}`: has no option `{option}`; "
                + (f"expected one of {', '.join(known)}" if known else "it takes none")
            )
    if name.startswith(REMOTE):
        # Imported here: it needs these devices.
        from .remote import RemoteDevice
        from .remote_host import RemoteHost

        remote = RemoteDevice if has_accelerator(name) else RemoteHost
        return remote(configuration, memory or MemoryModel(), name, options)
    if is_board(name):
        # Imported here: without a board, no link is needed.
        if name.startswith(ZYNQ):
            from .zynq import ZynqDevice

            return ZynqDevice(configuration, name)
        from .board import BoardDevice

        return BoardDevice(configuration, name)
    if kind == GpuDevice.name:
        return GpuDevice(configuration, memory or MemoryModel(), name)
    return DEVICES[name](configuration, memory or MemoryModel(), **options)

"""What a processor can do, as far as code generation asks: vectors, fused and dot products.

Names and features are LLVM's. `host` is this machine; `LEVELS` are the feature sets for which
kernels have schedules, each of which includes those after it.
"""

from dataclasses import dataclass

import llvmlite.binding as llvm

from ...errors import CompileError
from ..te.processor import DotProduct, Processor

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

_WORDS = (("int16", "int16"),)
_S16 = (("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"), *_WORDS)

LEVELS = {
    "avx512vnni": ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "fma", "avx2"),
    "avx2": ("avx2", "fma"),
    "sse2": (),
}
"""Feature sets, the most able first: each needs all its features."""

_PROCESSORS = {"avx512vnni": "", "avx2": "haswell", "sse2": "x86-64"}
"""LLVM's processor for a level; empty for the host's own."""

_INSTRUCTIONS = {
    "avx512vnni": (
        DotProduct("vpdpbusd", 16, 4, (("uint8", "int8"),)),
        DotProduct("vpdpwssd", 16, 2, _WORDS),
    ),
    "avx2": (DotProduct("vpmaddwd", 8, 2, _S16),),
    "sse2": (DotProduct("pmaddwd", 4, 2, _S16),),
}


@dataclass(frozen=True, slots=True)
class Target:
    """A processor to compile for.

    Parameters
    ----------
    triple
        Architecture, vendor and operating system.
    cpu
        LLVM's name of the processor.
    features
        LLVM's list of features to add and to leave out, as one text.
    level
        One of `LEVELS`.
    """

    triple: str
    cpu: str
    features: str
    level: str

    @property
    def lanes(self) -> int:
        """32-bit elements of a vector register."""
        return {"avx512vnni": 16, "avx2": 8, "sse2": 4}[self.level]

    @property
    def registers(self) -> int:
        """Vector registers."""
        return 32 if self.level == "avx512vnni" else 16

    @property
    def table_lanes(self) -> int:
        """Bytes that are looked up in a table of 256 at once, 1 where each is a load of its own."""
        return 64 if "+avx512vbmi," in f"{self.features}," else 1

    @property
    def fused(self) -> bool:
        """Whether a product and a sum are one instruction, rounded once."""
        return self.level != "sse2"

    @property
    def processor(self) -> Processor:
        """What schedules see."""
        return Processor(self.level, _INSTRUCTIONS[self.level])

    def machine(self) -> llvm.TargetMachine:
        """LLVM's code generator for it."""
        target = llvm.Target.from_triple(self.triple)
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=3, reloc="pic", codemodel="small"
        )


def host(level: str | None = None) -> Target:
    """This machine, with all that it can do or with a lower level's features alone.

    Parameters
    ----------
    level
        One of `LEVELS`; the highest that this machine has by default.

    Raises
    ------
    CompileError
        When the level does not exist, or this machine lacks it.
    """
    triple = llvm.get_process_triple()
    if not triple.startswith("x86_64"):
        raise CompileError(
            f"CPU target: schedules exist for x86-64, not for `{triple}`; run on such a machine, "
            "or choose another device"
        )
    available = llvm.get_host_cpu_features()
    able = [name for name, needed in LEVELS.items() if all(available.get(n) for n in needed)]
    chosen = able[0] if level is None else level
    if chosen not in able:
        what = "is none" if chosen not in LEVELS else "lacks features on this machine"
        raise CompileError(f"CPU target: level `{chosen}` {what}; choose {' or '.join(able)}")
    cpu = _PROCESSORS[chosen]
    if cpu:
        return Target(triple, cpu, "", chosen)
    return Target(triple, llvm.get_host_cpu_name(), available.flatten(), chosen)

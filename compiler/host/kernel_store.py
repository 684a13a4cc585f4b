"""The machine code of a host's kernels: compiled in advance, or loaded when a module runs."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...errors import CompileError, warn_of_kernel
from ..cpu import CompiledKernel, CpuTarget, Description, compile_kernel, load_kernel
from ..cpu.execution.kernel import key_of
from ..cpu.kernels.choices import applied_choices, with_recorded_choice
from .plan import HostPlan

NO_CHOICES: Mapping[str, str] = MappingProxyType({})
"""The planners' own decisions everywhere."""


def compile_host(
    plan: HostPlan,
    progress: Callable[[str], None] = lambda line: None,
    choices: Mapping[str, str] = NO_CHOICES,
) -> dict[str, bytes]:
    """Compile the kernels to machine code, by `key_of`; equal descriptions share it.

    A kernel that cannot be compiled is omitted with a warning, and NumPy computes its nodes.
    `progress` is called with one line before each kernel. `choices` has decisions of schedules, see
    `with_recorded_choice`.
    """
    code: dict[str, bytes] = {}
    for description in plan.descriptions():
        assert plan.target is not None
        progress(f"{type(description).__name__} for the host")
        # A record may hold decisions that this version cannot compile.
        chosen = with_recorded_choice(description, plan.target, choices)
        for one in dict.fromkeys((chosen, description)):
            key = key_of(one, plan.target)
            if key not in code:
                try:
                    code[key] = compile_kernel(one, plan.target).to_bytes()
                except CompileError as problem:
                    if one == description:
                        warn_of_kernel(type(description).__name__, problem)
            if key in code:
                break
    return code


def used_choices(
    plan: HostPlan, code: Mapping[str, bytes], choices: Mapping[str, str]
) -> dict[str, str]:
    """Return the choices with which `compile_host` made machine code."""
    target = plan.target
    if target is None or not choices:
        return {}
    made = applied_choices(
        plan.descriptions(), target, choices, lambda one: key_of(one, target) in code
    )
    return dict(made)


@dataclass(slots=True)
class KernelStore:
    """The kernels of a module; each one is loaded or compiled once.

    Parameters
    ----------
    target : CpuTarget
        Processor that runs the kernels.
    code : mapping
        Machine code from `compile_host`, possibly for another processor; missing kernels are
        compiled.
    threads : int
        Threads that share a kernel's parallel loops.
    trust_code : bool
        Whether to run machine code that this user's key has not signed.
    choices : mapping
        Decisions of schedules, see `with_recorded_choice`.
    kept : callable
        Returns machine code by its key, from a cache of what was compiled earlier, or None.

    Attributes
    ----------
    distrusted : dict
        Why machine code of the module was not used, by the kernel's key.
    compiled : dict
        Machine code that had to be compiled, by its key.
    """

    target: CpuTarget
    code: Mapping[str, bytes]
    threads: int
    trust_code: bool = False
    choices: Mapping[str, str] = field(default_factory=dict)
    kept: Callable[[str], bytes | None] = lambda key: None
    distrusted: dict[str, str] = field(default_factory=dict)
    compiled: dict[str, bytes] = field(default_factory=dict)
    _loaded: dict[str, CompiledKernel] = field(default_factory=dict)

    def get(self, description: Description) -> CompiledKernel:
        """Return the machine code of a kernel.

        Raises
        ------
        CompileError
            If it cannot be compiled.
        """
        description = with_recorded_choice(description, self.target, self.choices)
        key = key_of(description, self.target)
        if key not in self._loaded:
            self._loaded[key] = self._find(key, description)
        return self._loaded[key]

    def _find(self, key: str, description: Description) -> CompiledKernel:
        """Load a kernel from the module or the cache, or compile it."""
        if (data := self.code.get(key)) is not None:
            trust = self.trust_code
            try:
                return load_kernel(data, description, self.target, self.threads, trust_code=trust)
            except CompileError as problem:
                self.distrusted[key] = str(problem).removesuffix("; compile it again")
        if (data := self.kept(key)) is not None:
            with contextlib.suppress(CompileError):
                return load_kernel(data, description, self.target, self.threads)
        kernel = compile_kernel(description, self.target, self.threads)
        self.compiled[key] = kernel.to_bytes()
        return kernel

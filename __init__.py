"""A hardware/software co-design workbench for tensor accelerators.

The names below are the public face: a configuration, a model compiled for it, a device that runs
it, and tensor expressions for operators of one's own. They are loaded when first used, so that
importing one part does not load all others.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .compiler import te
    from .compiler.accelerator.lower_kernel import lower
    from .compiler.accelerator.target import Accelerator
    from .compiler.exporters import export_onnx
    from .compiler.frontend import import_model
    from .compiler.frontend.pytorch import from_torch
    from .compiler.options import Options
    from .compiler.placement import Placement
    from .compiler.quantiser import QuantiserOptions
    from .compiler.register_operator import register_operator
    from .compiler.schedule_kernel import schedule_kernel
    from .errors import TilewrightError
    from .flows.execution.compile_graph import compile_graph
    from .flows.tuning.layer_bench import LayerBench
    from .isa.configuration import DEFAULT, PRESETS, Configuration
    from .isa.memory_model import MemoryModel
    from .isa.settings import load_configuration
    from .runtime import Benchmark, Comparison, Profile, Session, load, open_device, save

__version__ = "0.2.0"

_HOMES = {
    "Accelerator": ".compiler.accelerator.target",
    "Benchmark": ".runtime",
    "Comparison": ".runtime",
    "Configuration": ".isa.configuration",
    "DEFAULT": ".isa.configuration",
    "LayerBench": ".flows.tuning.layer_bench",
    "MemoryModel": ".isa.memory_model",
    "Options": ".compiler.options",
    "PRESETS": ".isa.configuration",
    "Placement": ".compiler.placement",
    "Profile": ".runtime",
    "QuantiserOptions": ".compiler.quantiser",
    "Session": ".runtime",
    "TilewrightError": ".errors",
    "compile_graph": ".flows.execution.compile_graph",
    "export_onnx": ".compiler.exporters",
    "from_torch": ".compiler.frontend.pytorch",
    "import_model": ".compiler.frontend",
    "load": ".runtime",
    "load_configuration": ".isa.settings",
    "lower": ".compiler.accelerator.lower_kernel",
    "open_device": ".runtime",
    "register_operator": ".compiler.register_operator",
    "save": ".runtime",
    "schedule_kernel": ".compiler.schedule_kernel",
    "te": ".compiler.te",
}
"""Public name -> the module that defines or exports it, or that is meant itself (`te`)."""

__all__ = [
    "DEFAULT",
    "PRESETS",
    "Accelerator",
    "Benchmark",
    "Comparison",
    "Configuration",
    "LayerBench",
    "MemoryModel",
    "Options",
    "Placement",
    "Profile",
    "QuantiserOptions",
    "Session",
    "TilewrightError",
    "compile_graph",
    "export_onnx",
    "from_torch",
    "import_model",
    "load",
    "load_configuration",
    "lower",
    "open_device",
    "register_operator",
    "save",
    "schedule_kernel",
    "te",
]


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name not in _HOMES:
        from .errors import did_you_mean

        raise AttributeError(
            f"module `tilewright` has no attribute `{name}`" + did_you_mean(name, __all__)
        )
    home = import_module(_HOMES[name], __name__)
    return getattr(home, name, home)


def __dir__() -> list[str]:
    """List the public names, loaded or not, for completion."""
    return sorted({*globals(), *__all__})

"""Schedules as text: the output of `compile --schedules`, and the schedules from a user.

The text of a layer has the steps of its schedule, one per line. In a text with several layers, each
layer begins with a line `# layer NAME`, and `# configuration NAME` tells for which machine. If a
layer has several kernels, a line `# part NUMBER` comes before each kernel except the first.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ...errors import CompileError
from ...isa.configuration import Configuration
from ...wording import counted
from ..accelerator.search import Candidate
from ..accelerator.target import Accelerator
from ..graph import Node
from ..graph.short_names import JOINT, denotes, short_name, similar_names
from ..module import Layer, Module
from ..te.schedule import Schedule
from ..te.steps import Step
from ..te.target import ScheduleError
from ..tensor import Kernel

NO_SCHEDULES: Mapping[str, str] = MappingProxyType({})
"""No schedules from the user."""

_LAYER = re.compile(r"#\s*layer (.*)")
_MACHINE = re.compile(r"^\s*#\s*configuration (.*?)\s*$", re.MULTILINE)
_NUMBER = re.compile(r"#\d+$")
_PART = re.compile(r"#\s*part \d+\s*")


@dataclass(frozen=True, slots=True)
class GivenSchedule:
    """A user's schedule for a kernel of a layer."""

    layer: str
    text: str

    def schedule(
        self, kernel: Kernel, configuration: Configuration, alike: object = None
    ) -> Schedule:
        """The steps, checked.

        Raises
        ------
        CompileError
            When a step is illegal at its position.
        """
        try:
            return Schedule.parse(
                kernel, self.text, Accelerator(configuration), whole_stages(kernel)
            )
        except ScheduleError as error:
            step = (
                error.step.renamed(short_stages(kernel)) if isinstance(error.step, Step) else None
            )
            short = ScheduleError(with_short_stages(kernel, str(error)), step, error.line)
            raise CompileError(f"schedule of layer `{short_name(self.layer)}`: {short}") from short


def with_short_stages(kernel: Kernel, text: str) -> str:
    """A message with the names of stages as printed schedules have them."""
    for short, whole in sorted(_shorts(kernel), key=lambda pair: -len(pair[1])):
        text = text.replace(whole, short) if "/" in whole else text
    return text


def short_stages(kernel: Kernel) -> Callable[[str], str]:
    """A function that shortens the paths of exporters in the name of a stage."""
    return _renaming({whole: short for short, whole in _shorts(kernel)})


def whole_stages(kernel: Kernel) -> Callable[[str], str]:
    """A function that returns the whole name of a stage; users may shorten it."""
    return _renaming({**dict(_shorts(kernel)), **{whole: whole for whole in kernel.tensors}})


def _shorts(kernel: Kernel) -> list[tuple[str, str]]:
    """Short and whole names of tensors; a short one has a slash, which names of loops have not."""
    parts = [whole.rpartition(" ") for whole in kernel.tensors]  # such as `windows of PATH`
    shorts = [f"{words}{space}{short_name(path)}" for words, space, path in parts]
    count = Counter(shorts)
    pairs = zip(shorts, kernel.tensors, strict=True)
    return [
        (short if "/" in short and count[short] == 1 else whole, whole) for short, whole in pairs
    ]


def _renaming(names: Mapping[str, str]) -> Callable[[str], str]:
    def renamed(name: str) -> str:
        tensor = name  # of a stage such as `x.ACT`
        while tensor and tensor not in names:
            tensor = tensor.rpartition(".")[0]
        return names[tensor] + name[len(tensor) :] if tensor else name

    return renamed


Part = tuple[Kernel, Candidate | GivenSchedule]
"""A kernel and its schedule."""


def estimated_cycles(choice: Candidate | GivenSchedule) -> int:
    """The estimate of a schedule that the compiler found.

    Raises
    ------
    CompileError
        For a user's schedule, which no estimate knows.
    """
    if isinstance(choice, GivenSchedule):
        raise CompileError(
            f"schedule of layer `{short_name(choice.layer)}`: no estimate knows its cycles; give "
            "`compile_graph` a `measure`"
        )
    return choice.estimated_cycles


def with_given(
    layer: str, output: str, work: Sequence[Part], given: Mapping[str, str]
) -> tuple[Part, ...]:
    """The kernels of a layer, with the user's schedules.

    Parameters
    ----------
    layer, output
        The layer's name and the value that it defines; a user may use either.

    Raises
    ------
    CompileError
        When the text has more or fewer parts than the layer has kernels.
    """
    text = given.get(layer, given.get(output))
    if text is None:
        return tuple(work)
    texts = _PART.split(text) if _has_steps(text) else []
    if work and not texts:
        raise CompileError(f"schedule of layer `{short_name(layer)}`: expected steps, got none")
    if len(texts) != len(work):
        raise CompileError(
            f"schedule of layer `{short_name(layer)}`: expected {counted(len(work), 'part')}, got "
            f"{len(texts)}; each but the first begins with `# part NUMBER`"
        )
    return tuple(
        (kernel, GivenSchedule(layer, text)) for (kernel, _), text in zip(work, texts, strict=True)
    )


def _has_steps(text: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def refuse_unknown_nodes(given: Iterable[str], nodes: Sequence[Node]) -> None:
    """Refuse names that no layer of these nodes can have, before the layers are formed.

    Raises
    ------
    CompileError
        Lists similar names.
    """
    outputs = {value.name for node in nodes for value in node.outputs}
    for name in given:
        parts = _NUMBER.sub("", name).split(JOINT)
        if name not in outputs and not all(
            any(denotes(part, node.name) for node in nodes) for part in parts
        ):
            raise _unknown_layer(name, [node.name for node in nodes])


def refuse_unknown_layers(given: Mapping[str, str], layers: Sequence[Layer]) -> None:
    """Refuse schedules of layers that a network does not have.

    Raises
    ------
    CompileError
        Lists similar names.
    """
    known = {name for layer in layers for name in (layer.name, layer.output)}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise _unknown_layer(unknown[0], [layer.name for layer in layers])


def _unknown_layer(name: str, known: Sequence[str]) -> CompileError:
    return CompileError(
        f"there is no layer `{name}` on the accelerator{similar_names(name, known)}"
    )


def joined(parts: Sequence[Schedule]) -> str:
    """The text of a layer's schedules, with short names of stages."""
    if not parts:
        return "# nothing to do: the value lies where it is needed"
    first, *others = (
        "\n".join(str(step.renamed(short_stages(part.kernel))) for step in part.steps)
        for part in parts
    )
    return "\n".join([first, *(f"# part {at}\n{text}" for at, text in enumerate(others, 2))])


def schedules_text(module: Module) -> str:
    """The schedules of all layers on the accelerator, each with its cycles as a comment.

    Layers with equal names use their outputs.
    """
    layers = [layer for segment in module.segments for layer in segment.layers]
    count = Counter(layer.name for layer in layers)
    machine = machine_line(module.configuration)
    return "\n".join(
        f"# layer {layer.name if count[layer.name] == 1 else layer.output}\n{machine}\n"
        f"{_times(row)}{layer.schedule}\n"
        for layer, row in zip(layers, module.report["layers"], strict=True)
    )


def machine_line(configuration: Configuration) -> str:
    """The comment in a layer's text that tells for which machine it is."""
    return f"# configuration {configuration.name}"


def machine_of(text: str) -> str | None:
    """The machine that a layer's text names; None if it names none."""
    found = _MACHINE.search(text)
    return found[1] if found else None


def _times(row: Mapping[str, Any]) -> str:
    bound = f"lower bound {row['bound']:,}"
    return f"# {bound}\n" if row["cycles"] is None else f"# {row['cycles']:,} cycles, {bound}\n"


def read_schedules(text: str) -> dict[str, str]:
    """The schedules in a text, by layer; text before the first layer has an empty name."""
    found: dict[str, list[str]] = {}
    lines = found.setdefault("", [])
    for line in text.splitlines():
        heading = _LAYER.fullmatch(line.strip())
        if heading:
            lines = found.setdefault(heading[1], [])
        else:
            lines.append(line)
    if not _has_steps("\n".join(found[""])):
        del found[""]
    return {name: "\n".join(lines) for name, lines in found.items()}

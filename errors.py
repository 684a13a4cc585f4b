"""Every error a user can meet, one class per layer; the command line prints one line and exits."""


class TilewrightError(Exception):
    """Base of all errors that Tilewright raises on purpose.

    Attributes
    ----------
    exit_code : int
        What the command line exits with: 1 the user's model or design, 2 usage, 3 a missing tool.
    """

    exit_code: int = 1


class UsageError(TilewrightError):
    """A command was called with arguments that make no sense together."""

    exit_code = 2


class ToolError(TilewrightError):
    """A tool on this machine is missing or failed."""

    exit_code = 3


class ConfigurationError(TilewrightError):
    """A configuration breaks a rule of the machine."""


class IsaError(TilewrightError):
    """An instruction has a field out of range, or a word or a line of assembly is not one."""


class ProgramError(TilewrightError):
    """A program has a race, an access out of bounds, a deadlock or an unbalanced token."""


class HardwareError(TilewrightError):
    """Hardware cannot be built as asked."""


class ImportModelError(TilewrightError):
    """A model file cannot be read or uses what Tilewright does not support."""


class CompileError(TilewrightError):
    """A graph cannot be compiled for the chosen configuration."""


class ProcessorError(CompileError):
    """This machine's processor cannot run the kernel that is asked for."""


class ArtifactError(TilewrightError):
    """A compiled artifact is damaged, or was built for another configuration."""


class InputError(TilewrightError):
    """Data given to a network is not what it takes."""


class DeviceError(TilewrightError):
    """A device refused a request, hung or reported an error."""

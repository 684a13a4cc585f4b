"""Every error a user can meet, one class per layer; the command line prints one line and exits."""

import sys
import warnings
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path


class TilewrightError(Exception):
    """Base of all errors that Tilewright raises on purpose.

    Attributes
    ----------
    exit_code : int
        What the command line exits with: 1 the user's model or design, 2 usage, 3 a missing tool.
    """

    exit_code: int = 1


class UsageError(TilewrightError):
    """The arguments of a command do not fit together."""

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


class KernelWarning(UserWarning):
    """A kernel of the host cannot be compiled, so NumPy computes its layers."""


def warn_of_kernel(name: str, problem: CompileError) -> None:
    """Warn the user, with the name of the kernel or of its layer, and with the reason."""
    warnings.warn(
        f"host kernel `{name}` does not compile, so NumPy computes it, which takes longer: "
        f"{problem}; this is a fault of Tilewright: report it with the model",
        KernelWarning,
        stacklevel=2,
    )


class UnfitError(CompileError):
    """A layer does not fit the chosen configuration, so that only the host can run it."""


class ProcessorError(CompileError):
    """This machine's processor cannot run the kernel that is asked for."""


class ArtifactError(TilewrightError):
    """A compiled artifact is damaged, or was built for another configuration."""


class InputError(TilewrightError):
    """The data do not fit the inputs of the network."""


class DeviceError(TilewrightError):
    """A device refused a request, hung or reported an error."""


_NO_DIGITS = str.maketrans("", "", "0123456789")


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message about an unknown word: a known word that is similar.

    Words that differ only in their numbers do not count as similar.

    Parameters
    ----------
    word : str
        The word as the user wrote it.
    known : iterable of str
        The possible words.
    otherwise : str
        The end of the message if no word is similar.
    """
    from difflib import get_close_matches

    letters = word.lower().translate(_NO_DIGITS)
    by_lower = {
        name.lower(): name for name in known if name.lower().translate(_NO_DIGITS) != letters
    }
    near = get_close_matches(word.lower(), by_lower, 1, cutoff=0.65)
    return f"; did you mean `{by_lower[near[0]]}`?" if near else otherwise


def install_command(extra: str) -> str:
    """The command that installs an optional part into this Python.

    In a clone that is the clone itself. An environment that uv made has no pip of its own, so
    the pip of another Python is asked to install there.

    Parameters
    ----------
    extra : str
        A name under `optional-dependencies` in `pyproject.toml`.
    """
    root = Path(__file__).resolve().parent
    is_clone = (root / "pyproject.toml").is_file()
    what = f"-e '{root}[{extra}]'" if is_clone else f"'tilewright[{extra}]'"
    if find_spec("pip"):
        return f"{sys.executable} -m pip install {what}"
    return f"python3 -m pip --python {sys.executable} install {what}"

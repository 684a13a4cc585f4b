"""`--schedules` and `--schedule`: write the schedule steps of every layer, and read edited ones."""

import argparse

from ...errors import UsageError
from ...file_access import MAX_TEXT_BYTES, read_part


def add_schedules(parser: argparse.ArgumentParser) -> None:
    """Add both options."""
    parser.add_argument(
        "--schedules", action="store_true",
        help="print every accelerator layer's schedule, as steps that `--schedule` takes back",
    )  # fmt: skip
    parser.add_argument(
        "--schedule", action="append", default=[], metavar="[LAYER=]FILE", dest="given",
        help="take the schedule of a layer, or of all layers in the file, from there; may be "
        "repeated",
    )  # fmt: skip


def chosen_schedules(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the steps of `--schedule`, by layer.

    Raises
    ------
    UsageError
        If a file cannot be read, or has no schedule for its layer.
    """
    from ...compiler.scheduling.given_schedules import read_schedules

    given: dict[str, str] = {}
    for text in arguments.given:
        layer, separator, path = text.rpartition("=")
        try:
            found = read_schedules(read_part(path, limit=MAX_TEXT_BYTES).decode())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--schedule {text}: cannot read `{path}`: {error}") from error
        if separator:
            steps = found.get(layer, found.get(""))
            if steps is None:
                raise UsageError(
                    f"--schedule {text}: `{path}` has no schedule of layer `{layer}`; it has "
                    f"{', '.join(f'`{name}`' for name in found) or 'none'}"
                )
            given[layer] = steps
        elif not found or "" in found:
            raise UsageError(
                f"--schedule {text}: steps in `{path}` stand under no line `# layer NAME`; name "
                "the layer as LAYER=FILE"
            )
        else:
            given |= found
    return given

"""Exported C without a board: this processor runs it, and the simulated hardware is its core.

`python examples/exported_c.py` exports the digits network, compiles the C with `CC` or gcc, runs it
on some scans, and compares its outputs with those of `sim`. The first run builds the simulator of
the hardware, which takes a minute.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tilewright as tw
from tilewright.flows.bare_metal.host_board import HostBoard, VerilatedCore

DIGITS = Path(__file__).parent / "digits"


def main() -> None:
    """Export, compile, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default="4x4", help="a preset (default: 4x4)")
    parser.add_argument("--samples", type=int, default=3, help="number of scans (default: 3)")
    arguments = parser.parse_args()
    graph = tw.import_model(DIGITS / "digits_int8_qdq.onnx")
    module = tw.compile_graph(graph, tw.PRESETS[arguments.config])
    with np.load(DIGITS / "test_digits.npz") as file:
        scans = file["inputs"][: arguments.samples, None]
    with TemporaryDirectory() as folder:
        board = HostBoard(module, Path(folder))
        board.connect(VerilatedCore(module.configuration))
        if code := board.load():
            raise SystemExit(f"network_load: {code}")
        with tw.open_device("sim", module.configuration) as sim:
            session = tw.Session(module, sim)
            for number, scan in enumerate(scans):
                code, (logits,) = board.run(scan)
                (expected,) = session.run(scan).outputs.values()
                if code or not np.array_equal(logits, expected):
                    raise SystemExit(f"scan {number}: result {code}, {logits}, not {expected}")
                print(f"scan {number}: the C says {logits.argmax()}, every bit as `sim`")


if __name__ == "__main__":
    main()

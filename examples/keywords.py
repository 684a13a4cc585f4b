"""Write a small keyword network as float ONNX, with the samples to quantise and test it.

The words are synthetic: two formants that glide, in noise. Training takes a second and NumPy alone:
the convolutions are random and stay so, and least squares fit the last layer to what they give
(after A. Rahimi and B. Recht, "Weighted Sums of Random Kitchen Sinks", 2008).

    python -m tilewright.examples.keywords          # keywords.onnx, train.npz and test.npz, here
    tilewright quantise keywords.onnx --calibrate train.npz -o keywords_int8.onnx
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright import Placement, Session, compile_graph, import_model, open_device

MODEL, TRAIN, TEST = "keywords.onnx", "train.npz", "test.npz"
SEED = 2017

WORDS: Mapping[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "yes": ((300, 2200), (550, 1800)),
    "no": ((600, 1000), (400, 800)),
    "up": ((700, 1200), (650, 1150)),
    "go": ((350, 1500), (450, 850)),
}
"""Frequencies of the two formants in Hz, at the start and at the end of the word."""

RATE_HZ = 8_000
FRAMES, HOP, WINDOW = 32, 128, 256
BANDS = 16
TRAIN_SAMPLES, TEST_SAMPLES = 400, 200


def sound(word: str, random: np.random.Generator) -> np.ndarray:
    """Return a word as float[samples]: two gliding formants of a speaker drawn anew, in noise."""
    samples = HOP * (FRAMES - 1) + WINDOW
    first, last = np.array(WORDS[word]) * random.normal(1, 0.08, (1, 2))
    path = np.linspace(0, 1, samples)[:, None]
    phases = 2 * np.pi * np.cumsum(first + (last - first) * path, axis=0) / RATE_HZ
    loudness = np.hanning(samples) * random.uniform(0.3, 1)
    return loudness * (np.sin(phases) @ (1, 0.6)) + random.normal(0, 0.25, samples)


def features(sounds: np.ndarray) -> np.ndarray:
    """Return log energies float32[count, 1, frames, bands] of float[count, samples]."""
    starts = HOP * np.arange(FRAMES)[:, None] + np.arange(WINDOW)
    spectra = abs(np.fft.rfft(sounds[:, starts] * np.hanning(WINDOW), axis=2)) ** 2
    energies = spectra[:, :, : WINDOW // 2].reshape(len(sounds), FRAMES, BANDS, -1).sum(axis=3)
    return np.log1p(energies)[:, None].round(3).astype(np.float32)


def recordings(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of so many words."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % len(WORDS)
    words = list(WORDS)
    return features(np.stack([sound(words[label], random) for label in labels])), labels


def network(weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return the network: a depthwise separable one, as keyword spotters are (arXiv:1711.07128)."""
    nodes: list[onnx.NodeProto] = []

    def layer(operator: str, name: str, source: str, *, relu: bool = False, **attributes) -> str:
        given = [key for key in (f"{name}.weight", f"{name}.bias") if key in weights]
        nodes.append(helper.make_node(operator, [source, *given], [name], name, **attributes))
        if relu:
            nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"], f"{name}.relu"))
        return nodes[-1].output[0]

    x = layer("Conv", "conv", "sound", relu=True, strides=[2, 2], pads=[1, 1, 1, 1])
    for block in ("block1", "block2"):
        x = layer("Conv", f"{block}.depthwise", x, relu=True, group=32, pads=[1, 1, 1, 1])
        x = layer("Conv", f"{block}.pointwise", x, relu=True)
    x = layer("Flatten", "flatten", layer("GlobalAveragePool", "pool", x))
    layer("Gemm", "word", x, transB=1)
    graph = helper.make_graph(
        nodes,
        "keywords",
        [helper.make_tensor_value_info("sound", TensorProto.FLOAT, [1, 1, FRAMES, BANDS])],
        [helper.make_tensor_value_info("word", TensorProto.FLOAT, [1, len(WORDS)])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def random_weights() -> dict[str, np.ndarray]:
    """Return weights drawn after He et al. (arXiv:1502.01852), and a last layer of zeros."""
    random = np.random.default_rng(SEED)
    shapes = {"conv": (32, 1, 3, 3)}
    for block in ("block1", "block2"):
        shapes |= {f"{block}.depthwise": (32, 1, 3, 3), f"{block}.pointwise": (32, 32, 1, 1)}
    weights: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        weights[f"{name}.weight"] = random.normal(0, deviation, shape).astype(np.float32)
        weights[f"{name}.bias"] = random.normal(0, 0.1, shape[0]).astype(np.float32)
    weights["word.weight"] = np.zeros((len(WORDS), 32), np.float32)
    weights["word.bias"] = np.zeros(len(WORDS), np.float32)
    return weights


def fit(weights: dict[str, np.ndarray], inputs: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Fit the last layer to the outputs of the one before, for which the network is run."""
    onnx.save(network(weights), path)
    graph = import_model(path, outputs=("flatten",))
    session = Session(compile_graph(graph, placement=Placement("host")), open_device("host"))
    seen = np.concatenate([session.run(x[None]).outputs["flatten"] for x in inputs])
    seen = np.hstack([seen, np.ones((len(seen), 1))])
    wanted = 4 * np.eye(len(WORDS))[labels] - 1
    solution = np.linalg.solve(seen.T @ seen + 0.1 * np.eye(seen.shape[1]), seen.T @ wanted)
    solution = solution.round(3)  # processors sum in different orders; the file is the same
    weights["word.weight"] = solution[:-1].T.astype(np.float32)
    weights["word.bias"] = solution[-1].astype(np.float32)


def main() -> None:
    """Write the network and the samples."""
    parser = argparse.ArgumentParser(description="Write a small keyword network with samples.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="the current one")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    weights = random_weights()
    inputs, labels = recordings(TRAIN_SAMPLES, SEED)
    fit(weights, inputs, labels, folder / MODEL)
    onnx.save(network(weights), folder / MODEL)
    np.savez_compressed(folder / TRAIN, inputs=inputs, labels=labels)
    tests, answers = recordings(TEST_SAMPLES, SEED + 1)
    np.savez_compressed(folder / TEST, inputs=tests, labels=answers)
    print(f"{folder / MODEL}: {', '.join(WORDS)}; {TRAIN}: {TRAIN_SAMPLES}, {TEST}: {TEST_SAMPLES}")


if __name__ == "__main__":
    main()

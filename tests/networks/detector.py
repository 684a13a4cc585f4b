"""A detector of two scales, written as exporters write it: every shape is computed in the graph.

Convolutions, then what turns their maps into boxes: grids of cells by Range, Expand, Tile and
NonZero, dynamic Reshapes, Split and Slice, Sigmoid and Exp, TopK over all boxes, GatherND and
GatherElements; NonMaxSuppression too, if asked for.
"""

import numpy as np

from .builder import Builder

ANCHORS, CLASSES, BEST = 2, 3, 20
FIELDS = 5 + CLASSES
"""Of a box: centre, extents, whether there is something, and what."""

SHAPE_OPERATORS = frozenset(
    {
        *("Shape", "Gather", "Unsqueeze", "Squeeze", "Range", "Cast"),
        *("Expand", "Tile", "ConstantOfShape", "NonZero", "ReduceMin"),
    }
)
"""Those of the file that work on shapes and grids alone; its Gathers pick extents."""


class Detector(Builder):
    """The nodes of the network.

    Parameters
    ----------
    suppress
        Whether NonMaxSuppression ends it.
    """

    def __init__(self, suppress: bool = False) -> None:
        super().__init__(seed=11)
        fine = self.layer(self.layer("image", 3, 16, 2), 16, 24, 2)
        coarse = self.layer(fine, 24, 32, 2)
        lateral = self.layer(coarse, 32, 24, 1, kernel=1)
        sizes = self.add(
            "Concat", self.leading(fine, 1), self.channels(24), self.spatial(fine), axis=0
        )
        resized = self.add(
            *("Resize", lateral, "", "", sizes),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        joined = self.layer(self.add("Concat", fine, resized, axis=1), 48, 24, 1)
        boxes = [self.decode(joined, 24, 4, tiled=True), self.decode(coarse, 32, 8, tiled=False)]
        self.outputs = self.best(self.add("Concat", *boxes, axis=1))
        if suppress:
            self.outputs = [self.suppressed(*self.outputs[:2])]

    def file(self) -> bytes:
        """The model; batch, height and width are open."""
        image = ("float32", ("batch", 3, "height", "width"))
        return self.model({"image": image}, self.outputs)

    def layer(self, x: str, inputs: int, channels: int, stride: int, kernel: int = 3) -> str:
        """A convolution and a Relu."""
        return self.add("Relu", self.convolve(x, inputs, channels, stride, kernel))

    def convolve(self, x: str, inputs: int, channels: int, stride: int = 1, kernel: int = 1) -> str:
        """A convolution that keeps the extents, or halves them."""
        spread = (2 / (inputs * kernel * kernel)) ** 0.5
        w = self.hold(self.random.normal(0, spread, (channels, inputs, kernel, kernel)))
        b = self.hold(self.random.normal(0, 0.2, channels))
        pads, strides = [kernel // 2] * 4, [stride, stride]
        return self.add("Conv", x, w, b, pads=pads, strides=strides, kernel_shape=[kernel] * 2)

    def leading(self, x: str, count: int) -> str:
        """The first extents, sliced out of the shape."""
        return self.add("Slice", self.add("Shape", x), self.whole(0), self.whole(count))

    def spatial(self, x: str) -> str:
        """Height and width, sliced out of the shape."""
        return self.add("Slice", self.add("Shape", x), self.whole(2), self.whole(4))

    def channels(self, count: int) -> str:
        """A number of channels, as ConstantOfShape and Mul make it."""
        return self.add("Mul", self.filled(self.whole(1), 1), self.whole(count))

    def filled(self, shape: str, number: int) -> str:
        """An int64 tensor of one number."""
        constant = self.hold(np.array([number]), "int64")
        return self.add("Expand", constant, shape)

    def decode(self, x: str, inputs: int, stride: int, tiled: bool) -> str:
        """Boxes of one scale [batch, anchors * cells, FIELDS]."""
        maps = self.convolve(x, inputs, ANCHORS * FIELDS)
        batch, h, w = (self.extent(maps, axis) for axis in (0, 2, 3))
        split = self.reshape(maps, batch, ANCHORS, FIELDS, h, w)
        cells = self.add("Transpose", split, perm=[0, 1, 3, 4, 2])
        grid = self.tiled_grid(h, w) if tiled else self.found_grid(h, w)
        grid = self.reshape(grid, 1, 1, h, w, 2)
        anchors = self.hold(self.random.uniform(1, 4, (1, ANCHORS, 1, 1, 2)) * stride)
        if tiled:
            sizes = self.whole(2, 2, 1 + CLASSES)
            centre, extents, rest = self.add("Split", cells, sizes, results=3, axis=4)
            wide = self.add("Mul", self.add("Sigmoid", extents), self.hold(2))
            factor = self.add("Pow", wide, self.hold(2))
        else:
            centre, extents, rest = (
                self.add("Slice", cells, *map(self.whole, (first, last, 4)))
                for first, last in ((0, 2), (2, 4), (4, FIELDS))
            )
            factor = self.add("Exp", extents)
        moved = self.add("Add", self.add("Sigmoid", centre), grid)
        parts = [
            self.add("Mul", moved, self.hold(stride)),
            self.add("Mul", factor, anchors),
            self.add("Sigmoid", rest),
        ]
        return self.reshape(self.add("Concat", *parts, axis=4), batch, -1, FIELDS)

    def count_to(self, extent: str) -> str:
        """0, 1, ... as float."""
        numbers = self.add(
            "Range", self.hold(0, "int64"), self.scalar(extent), self.hold(1, "int64")
        )
        return self.add("Cast", numbers, to=1)

    def tiled_grid(self, h: str, w: str) -> str:
        """Column and row of each cell [height, width, 2]: Range, then Tile and Expand."""
        column = self.add("Unsqueeze", self.count_to(w), self.whole(0))
        row = self.add("Unsqueeze", self.count_to(h), self.whole(1))
        columns = self.add("Tile", column, self.shape(h, 1))
        rows = self.add("Expand", row, self.shape(h, w))
        parts = [self.add("Unsqueeze", part, self.whole(-1)) for part in (columns, rows)]
        return self.add("Concat", *parts, axis=-1)

    def found_grid(self, h: str, w: str) -> str:
        """The same as the places where a tensor of ones is not zero."""
        ones = self.add("ConstantOfShape", self.shape(h, w))
        every = self.add("Equal", ones, self.hold(0))
        places = self.add("NonZero", every)
        rows, columns = (self.add("Gather", places, self.whole(index)) for index in (0, 1))
        pairs = self.add("Transpose", self.add("Concat", columns, rows, axis=0), perm=[1, 0])
        return self.add("Cast", pairs, to=1)

    def best(self, boxes: str) -> list[str]:
        """The best boxes as corners [batch, BEST, 4], their scores and classes [batch, BEST]."""
        centre, extents, there, kinds = self.add(
            "Split", boxes, self.whole(2, 2, 1, CLASSES), results=4, axis=-1
        )
        scores = self.add("Mul", there, kinds)
        score = self.add("ReduceMax", scores, axes=[-1], keepdims=0)
        kind = self.add("ArgMax", scores, axis=-1, keepdims=0)
        count = self.add("ReduceMin", self.shape(self.extent(boxes, 1), BEST), axes=[0], keepdims=1)
        top, places = self.add("TopK", score, count, results=2, axis=1)
        half = self.add("Mul", extents, self.hold(0.5))
        ends = [self.add(sign, centre, half) for sign in ("Sub", "Add")]
        corners = self.add("Concat", *ends, axis=-1)
        rows = self.add("Unsqueeze", places, self.whole(-1))
        picked = self.add("GatherND", corners, rows, batch_dims=1)
        return [picked, top, self.add("GatherElements", kind, places, axis=1)]

    def suppressed(self, boxes: str, scores: str) -> str:
        """What NonMaxSuppression keeps, int64[kept, 3]: as many rows as there are boxes apart."""
        classes = self.add("Unsqueeze", scores, self.whole(1))
        limits = [self.whole(10), self.hold([0.5]), self.hold([0.05])]
        return self.add("NonMaxSuppression", boxes, classes, *limits)


def draw_image(seed: int, batch: int, height: int, width: int) -> np.ndarray:
    """A smooth image float32[batch, 3, height, width], brighter here and darker there."""
    random = np.random.default_rng(seed)
    coarse = random.normal(0, 1, (batch, 3, height // 8, width // 8))
    fine = random.normal(0, 0.3, (batch, 3, height, width))
    return (coarse.repeat(8, axis=2).repeat(8, axis=3) + fine).astype(np.float32)

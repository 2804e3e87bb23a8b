"""An ONNX graph that grows behind a backbone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiveshot.backbones import Preprocessing

OUTPUTS = ("probabilities", "logits", "familiarity")
LEAST = np.float32(1e-12)  # length of a vector that has none


class GraphBuilder:
    """An ONNX graph that is built node by node; values have names."""

    def __init__(self, onnx: Any, model: Any) -> None:
        self.onnx, self.model = onnx, model
        self.features = "features"  # the output of the backbone
        self._count = 0

    def constant(self, values: Any) -> str:
        """Add a constant array: int64 for integers, float32 otherwise."""
        array = np.asarray(values)
        array = np.ascontiguousarray(array, np.int64 if array.dtype.kind in "iu" else np.float32)
        name = self._fresh("constant")
        self.model.graph.initializer.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output. Inputs are names, or arrays for constants."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        found = [self._fresh(operator) for _ in range(outputs)]
        self.model.graph.node.append(self.onnx.helper.make_node(operator, names, found, **attributes))
        return found[0]

    def average_views(self, shape: tuple[int, int, int, int]) -> None:
        """Change the input to photos with several views each, (n, *shape); average the features of the views."""
        views, *square = shape
        flat = self.constant(np.array([-1, *square]))
        self._before_network(shape, ("Reshape", flat))
        each = self.node("Unsqueeze", self.features, np.array([0]))  # (1, n · views, d)
        apart = self.node("Reshape", each, np.array([-1, views, 0]), allowzero=0)
        self.features = self.node("ReduceMean", apart, np.array([1]), keepdims=0)

    def take_pixels(self, prepared: Preprocessing) -> None:
        """Take squares of RGB from 0 to 1, (n, 3, size, size), in the place of normalized ones."""
        mean, std = (self.constant(np.reshape(values, (3, 1, 1))) for values in (prepared.mean, prepared.std))
        self._before_network(prepared.shape[1:], ("Sub", mean), ("Div", std))

    def _before_network(self, shape: Sequence[int], *steps: tuple[str, str]) -> None:
        """Put nodes of an operator and a constant before the network, and say what shape the first one takes."""
        (taken,) = self.model.graph.input
        nodes, helper = self.model.graph.node, self.onnx.helper
        names = [taken.name, *(self._fresh("input") for _ in steps)]
        for node in nodes:
            inputs = [names[-1] if name == taken.name else name for name in node.input]
            del node.input[:]
            node.input.extend(inputs)
        for number, (operator, constant) in enumerate(steps):
            step = helper.make_node(operator, [names[number], constant], [names[number + 1]])
            nodes.insert(number, step)
        taken.CopyFrom(helper.make_tensor_value_info(taken.name, self.onnx.TensorProto.FLOAT, ["n", *shape]))

    def finish(self, outputs: Sequence[str], *, classes: int) -> None:
        """Set the outputs of the graph."""
        helper, floats = self.onnx.helper, self.onnx.TensorProto.FLOAT
        del self.model.graph.output[:]
        shapes = (["n", classes], ["n", classes], ["n"])
        for name, value, shape in zip(OUTPUTS, outputs, shapes, strict=True):
            self.model.graph.node.append(helper.make_node("Identity", [value], [name]))
            self.model.graph.output.append(helper.make_tensor_value_info(name, floats, shape))

    def unit_rows(self, rows: str) -> str:
        """Scale the rows to length one."""
        return self.node("Div", rows, self.node("Max", self.lengths(rows, keepdims=1), LEAST))

    def lengths(self, rows: str, *, keepdims: int) -> str:
        """Return the length of each row."""
        return self.node("ReduceL2", rows, np.array([1]), keepdims=keepdims)

    def product(self, rows: str, others: str) -> str:
        """Return the dot products of all rows with all rows of the other array."""
        return self.node("ReduceSum", self.node("Mul", rows, others), np.array([1]), keepdims=0)

    def largest(self, rows: str) -> str:
        """Return the largest value of each row."""
        return self.node("ReduceMax", rows, np.array([1]), keepdims=0)

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"fiveshot.{kind}.{self._count}"

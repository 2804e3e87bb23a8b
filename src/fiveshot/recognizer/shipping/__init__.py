"""How a model travels: one file out and in, classes of another model, an ONNX graph, a page, the hub."""

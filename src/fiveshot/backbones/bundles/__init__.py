"""Networks from ONNX files: the files of a bundle, its graph, what is read from it and how photos are prepared."""

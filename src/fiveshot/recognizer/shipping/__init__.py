"""Ways to ship a model: portable files, merging, ONNX, a web page, the Hugging Face hub."""

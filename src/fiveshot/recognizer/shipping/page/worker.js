// Looks at photos beside the page, which stays quick meanwhile: decoding, the network, what its numbers mean.

import * as ort from "./ort.wasm.bundle.min.mjs";
import { answerOf } from "./answers.js";
import { normalized, squares } from "./pixels.js";

const LONGEST_SIDE = 100; // times the short one
const OPENED = { imageOrientation: "from-image", colorSpaceConversion: "none", premultiplyAlpha: "default" };
let loaded = 0; // bytes that have come

// Loads a file that is packed with gzip. Some hosts unpack such files on the way, and then nothing is left to do.
async function unpacked(address, total) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address} cannot be loaded (${response.status})`);
  const parts = [];
  const reader = response.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    loaded += part.value.length;
    postMessage({ loaded, total });
  }
  const packed = new Blob(parts);
  const start = new Uint8Array(await packed.slice(0, 2).arrayBuffer());
  if (start[0] !== 0x1f || start[1] !== 0x8b) return new Uint8Array(await packed.arrayBuffer());
  return new Uint8Array(await new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

async function load() {
  const model = await (await fetch("model.json")).json();
  ort.env.wasm.numThreads = 1; // more would need headers that few hosts send
  ort.env.wasm.wasmBinary = await unpacked("ort.wasm.gz", model.bytes);
  const graph = await unpacked("model.onnx.gz", model.bytes);
  const session = await ort.InferenceSession.create(graph, { executionProviders: ["wasm"], logSeverityLevel: 3 });
  postMessage({ ready: true });
  return { model, session };
}

const loading = load();
loading.catch((error) => postMessage({ failed: error.message }));

// Reads rows of a picture, on white where it is transparent.
function rowsOf(bitmap) {
  const canvas = new OffscreenCanvas(bitmap.width, 1);
  let context = null;
  return (top, count) => {
    if (canvas.height !== count || !context) {
      canvas.height = count;
      context = canvas.getContext("2d", { willReadFrequently: true });
    }
    context.fillStyle = "#fff";
    context.fillRect(0, 0, bitmap.width, count);
    context.drawImage(bitmap, 0, top, bitmap.width, count, 0, 0, bitmap.width, count);
    return context.getImageData(0, 0, bitmap.width, count).data;
  };
}

async function look(picture) {
  const { model, session } = await loading;
  const began = performance.now();
  const bitmap = picture instanceof ImageBitmap ? picture : await createImageBitmap(picture, OPENED);
  try {
    const [short, long] = [bitmap.width, bitmap.height].sort((a, b) => a - b);
    if (long > LONGEST_SIDE * short) throw new Error("One side is more than 100 times the other.");
    const views = squares(rowsOf(bitmap), bitmap.width, bitmap.height, model.input);
    const images = new ort.Tensor("float32", normalized(views, model.input), [1, ...model.input.shape.slice(1)]);
    const found = await session.run({ images });
    const seconds = (performance.now() - began) / 1000;
    return { ...answerOf(found.probabilities.data, found.familiarity.data[0], model), seconds };
  } finally {
    bitmap.close();
  }
}

onmessage = async ({ data: { id, picture } }) => {
  try {
    postMessage({ id, answer: await look(picture) });
  } catch (error) {
    const unreadable = error.name === "InvalidStateError" || error.name === "EncodingError";
    postMessage({ id, error: unreadable ? "This browser cannot read the picture. JPEG, PNG and WebP always work." : error.message });
  }
};

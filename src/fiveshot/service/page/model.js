// The page's copy of the model: classes, limits, and listeners for changes.

import * as api from "./api.js";

export const model = { classes: 0, state: -1, undo: null, limits: { photos: 50, body_bytes: 64 * 2 ** 20 } };
export const readOnly = document.documentElement.classList.contains("read-only"); // then the page only tries photos
export const isKnown = () => model.state >= 0; // false until the service has told it for the first time
const listeners = new Set();

export const whenChanged = (listener) => listeners.add(listener);

// Reads the model again; `fresh` is the class to highlight.
export async function refresh(fresh) {
  Object.assign(model, await api.model());
  await Promise.all(Array.from(listeners, (listener) => listener(fresh)));
}

// A part of a photo: a rectangle drawn with the mouse, a finger or keys. It is stored as `box` of the photo, in shares.

import { $ } from "./elements.js";
import { showFile } from "./pictures.js";

const STEP = 0.02; // share of a side for one key press
const LEAST = 0.02; // a smaller rectangle is a mistake
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
let box = null; // left, top, width, height, as shares
let photo = null;
let done = () => {};
let corner = null; // where drawing began

const within = (value, least = 0, most = 1) => Math.min(most, Math.max(least, value));

// Actions of the viewer for the part of a photo; `then` is called after a change.
export const partWays = (file, then) => [
  [file.box ? "Change the part" : "Choose a part", () => choose(file, then)],
  ...(file.box ? [["Use the whole photo", () => { delete file.box; then(); }]] : []),
];

export const partNote = (file) => (file.box ? "a part of it" : "");

function choose(file, then) {
  [photo, done] = [file, then];
  $("frame-title").textContent = file.name;
  $("frame-note").textContent = "Draw a rectangle. Arrow keys move it, with Shift they change its size.";
  const image = document.createElement("img");
  image.alt = file.name;
  image.draggable = false;
  image.onerror = () => { $("frame-note").textContent = "This browser cannot show the picture, so no part can be chosen."; };
  $("frame-area").replaceChildren(image, $("frame-box"));
  showFile(file)(image);
  set(file.box || [0.25, 0.25, 0.5, 0.5]);
  $("frame").showModal();
  $("frame-area").focus();
}

function set(next) {
  const [width, height] = [within(next[2], LEAST), within(next[3], LEAST)];
  box = [within(next[0], 0, 1 - width), within(next[1], 0, 1 - height), width, height];
  const sides = ["left", "top", "width", "height"];
  sides.forEach((side, index) => { $("frame-box").style[side] = `${100 * box[index]}%`; });
  $("frame-box").setAttribute("aria-label", sides.map((side, index) => `${side} ${Math.round(100 * box[index])} %`).join(", "));
}

function place(event) {
  const area = $("frame-area").getBoundingClientRect();
  return [within((event.clientX - area.left) / area.width), within((event.clientY - area.top) / area.height)];
}

function draw(event) {
  if (!corner) return;
  const [x, y] = place(event);
  const [width, height] = [Math.abs(x - corner[0]), Math.abs(y - corner[1])];
  if (width >= LEAST && height >= LEAST) set([Math.min(x, corner[0]), Math.min(y, corner[1]), width, height]);
}

function keys(event) {
  const way = KEYS[event.key];
  if (event.key === "Enter") use();
  else if (way && event.shiftKey) set([box[0], box[1], box[2] + STEP * way[0], box[3] + STEP * way[1]]);
  else if (way) set([box[0] + STEP * way[0], box[1] + STEP * way[1], box[2], box[3]]);
  else return;
  event.preventDefault();
}

function use() {
  photo.box = box.map((value) => Math.round(10000 * value) / 10000);
  $("frame").close();
  done();
}

export function setUpFrame() {
  const area = $("frame-area");
  area.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    corner = place(event);
    area.setPointerCapture(event.pointerId); // a finger may leave the picture
    event.preventDefault();
    area.focus();
  });
  area.addEventListener("pointermove", draw);
  for (const end of ["pointerup", "pointercancel"]) area.addEventListener(end, (event) => { draw(event); corner = null; });
  area.addEventListener("keydown", keys);
  $("frame-use").addEventListener("click", use);
}

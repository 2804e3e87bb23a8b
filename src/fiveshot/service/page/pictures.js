// Pictures: small ones, shown while they are in sight; and one enlarged.

import * as api from "./api.js";
import { $, button, make } from "./elements.js";

// Photos are large, so a picture of a file is there only as long as somebody can see it.
const inSight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting && !target.src) target.show();
    else if (!isIntersecting && target.hide) target.hide();
  }
}, { rootMargin: "400px" });

export function ofFile(file) {
  const image = Object.assign(make("img"), { alt: file.name, decoding: "async" });
  let url;
  image.show = () => { url = image.src = URL.createObjectURL(file); };
  image.hide = () => { if (url) { image.removeAttribute("src"); URL.revokeObjectURL(url); url = null; } };
  image.onerror = () => { if (url) notShown(image); };
  inSight.observe(image);
  return image;
}

export function ofAddress(address, alt) {
  const image = Object.assign(make("img"), { alt, decoding: "async" });
  image.onerror = () => notShown(image);
  image.show = () => api.showPicture(image, address).catch(() => notShown(image));
  inSight.observe(image);
  return image;
}

function notShown(image) {
  inSight.unobserve(image);
  image.replaceWith(make("span", "no-picture", image.alt || "no picture"));
}

let album = [];
let place = 0;

// Enlarges one of several pictures: {show(image), title, note, ways()}.
export function enlarge(pictures, index) {
  album = pictures;
  step(index);
  if (!$("viewer").open) $("viewer").showModal();
}

function step(index) {
  place = (index + album.length) % album.length;
  const one = album[place];
  const image = Object.assign(make("img"), { alt: one.title });
  image.onerror = () => { image.replaceWith(make("p", "muted", "This browser cannot show the picture.")); };
  $("viewer-picture").replaceChildren(image);
  one.show(image);
  $("viewer-title").textContent = one.title;
  $("viewer-note").textContent = [one.note, album.length > 1 ? `${place + 1} of ${album.length}` : ""].filter(Boolean).join(" · ");
  const ways = (one.ways?.() || []).map(([text, run, kind = ""]) => button(text, kind, () => { $("viewer").close(); run(); }));
  $("viewer-ways").replaceChildren(...ways);
  $("before").hidden = $("after").hidden = album.length < 2;
}

export const showFile = (file) => (image) => {
  image.src = URL.createObjectURL(file);
  image.onload = () => URL.revokeObjectURL(image.src);
};

export function setUpViewer() {
  $("before").addEventListener("click", () => step(place - 1));
  $("after").addEventListener("click", () => step(place + 1));
  $("viewer").addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(place - 1);
    else if (event.key === "ArrowRight") step(place + 1);
    else return;
    event.preventDefault();
  });
}

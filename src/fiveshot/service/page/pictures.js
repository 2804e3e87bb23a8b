// Pictures: small ones, loaded while they are visible; and one enlarged.

import * as api from "./api.js";
import { $, button, make } from "./elements.js";
import { model } from "./model.js";

// Photos are large, so the picture of a file exists only while it is visible. If the browser skips hidden content,
// its events are used, which costs less than observing every picture.
const SKIPPED = ".block, .finding, .pair, .group, .tiles li, .rows li"; // with content-visibility in the style
const inSight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) turn(target, isIntersecting);
}, { rootMargin: "400px" });

function turn(image, seen) {
  if (seen && !image.src) image.show();
  else if (!seen && image.hide) image.hide();
}

document.addEventListener("contentvisibilityautostatechange", (event) => {
  for (const image of event.target.querySelectorAll("img")) if (image.show) turn(image, !event.skipped);
}, true);

// A picture inside of content that may be skipped gets events; any other picture is observed.
function watch(image) {
  setTimeout(() => {
    const told = image.closest(SKIPPED) && "ContentVisibilityAutoStateChangeEvent" in window;
    if (!told) inSight.observe(image);
    else if (image.checkVisibility({ contentVisibilityAuto: true })) turn(image, true); // visible already
  });
  return image;
}

export function ofFile(file) {
  const image = Object.assign(make("img"), { alt: file.name, decoding: "async" });
  let url;
  image.show = () => { url = image.src = URL.createObjectURL(file); };
  image.hide = () => { if (url) { image.removeAttribute("src"); URL.revokeObjectURL(url); url = null; } };
  image.onerror = () => { if (url) notShown(image); };
  return watch(image);
}

export function ofAddress(address, alt) {
  const image = Object.assign(make("img"), { alt, decoding: "async" });
  image.onerror = () => notShown(image);
  image.show = () => api.showPicture(image, address).catch(() => notShown(image));
  return watch(image);
}

function notShown(image) {
  inSight.unobserve(image);
  image.replaceWith(make("span", "no-picture", image.alt || "no picture"));
}

// A small picture that can be enlarged.
export const opener = (image, name, open) => button(image, "open", open, `Enlarge ${name}`);
export const openerOfFile = (file, open) => opener(ofFile(file), file.name, open);
export const ofPhoto = (id, label) => ofAddress(api.picture(id), `${id} of ${label}`);
export const openerOfPhoto = (id, label, open) => opener(ofPhoto(id, label), `${id} of ${label}`, open);

// Shows a photo enlarged, or its small copy where the photo is not stored or this browser cannot show it.
export const showKept = (kept, small) => (image) => {
  const failed = image.onerror;
  const fallBack = () => { image.onerror = failed; api.showPicture(image, small).catch(failed); };
  image.onerror = fallBack;
  api.showPicture(image, kept).catch(fallBack);
};

// A learned photo; many models keep small copies alone.
export const showPhoto = (id) => (image) =>
  (model.keep_photos ? showKept(api.picture(id, true), api.picture(id))(image) : api.showPicture(image, api.picture(id)).catch(image.onerror));

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

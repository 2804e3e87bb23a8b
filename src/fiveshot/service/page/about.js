// One class: remove and move its photos, rename it, forget it.

import * as api from "./api.js";
import { $, button, fileName, inSlices, make, percent, plural } from "./elements.js";
import { change, complain, forGood, quiet } from "./notices.js";
import { model, whenChanged } from "./model.js";
import { NONE, chooseName } from "./naming.js";
import { enlarge, ofPhoto, openerOfPhoto, showPhoto } from "./pictures.js";
import { Selection, picker, setUpBar } from "./selection.js";
import { addTo } from "./teach.js";

let entry = null;
let photos = [];
let selection = null;
let round = 0;

export const openNegatives = () => openClass({ name: NONE, photos: model.negatives, negatives: true });

export function openClass(one) {
  entry = one;
  quiet();
  $("about-title").textContent = one.negatives ? "None of these" : one.name;
  for (const part of ["rename", "more", "forget"]) $(part).hidden = Boolean(one.negatives);
  $("about-note").textContent = plural(one.photos, "photo");
  $("new-name").value = one.name;
  $("about-photos").replaceChildren();
  selection.clear();
  $("about").showModal();
  showPhotos();
}

async function showPhotos() {
  const mine = ++round;
  try {
    ({ photos } = await (entry.negatives ? api.negatives() : api.photosOf(entry.name)));
  } catch (error) {
    if (error.code === "not_found") $("about").close(); // the class is gone
    else complain(error, $("about-error"));
    return;
  }
  if (mine !== round) return;
  if (entry.negatives && !photos.length) return $("about").close();
  selection.clear();
  $("about-note").textContent = aboutText();
  $("about-photos").replaceChildren();
  const pictures = photos.map(picture);
  await inSlices(photos.entries(), ([place, photo]) => {
    $("about-photos").append(tile(photo, () => enlarge(pictures, place)));
  }, () => mine === round);
}

function aboutText() {
  const scored = photos.some((photo) => photo.score !== null) ? ", each with its score when it is left out" : "";
  const kept = plural(photos.length, "photo") + scored;
  if (entry.negatives) return `${kept} that show none of the classes. They help to detect unknown photos.`;
  if (!entry.base) return kept;
  const base = "A base class: its photos are not stored";
  return photos.length ? `${base}; ${kept} added later` : `${base}.`;
}

// An enlarged photo of a class, with its actions.
function picture(photo) {
  return {
    show: showPhoto(photo.id),
    title: [`${photo.id} of ${photo.label}`, photo.name].filter(Boolean).join(": "),
    note: scoreText(photo),
    ways: () => [["Move to …", () => move([photo.id])], ["Remove", () => remove([photo.id]), "danger"]],
  };
}

function scoreText({ score, taken_for: other }) {
  if (score === null || score === undefined) return "";
  return `${percent(score)} when left out${other ? `: taken for ${other}` : ""}`;
}

// A photo in a list: it can be enlarged and selected.
function tile(photo, open) {
  const score = photo.score === null || photo.score === undefined ? "" : percent(photo.score);
  const notes = [photo.name && fileName(photo.name), score].filter(Boolean).map((text) => make("p", "small muted", text));
  const item = make("li", photo.taken_for ? "doubtful" : "", openerOfPhoto(photo.id, photo.label, open), picker(photo.id), make("p", "small", photo.id), ...notes);
  item.dataset.key = photo.id;
  item.title = scoreText(photo);
  return item;
}

const ofClass = () => ($("about").open ? $("about-error") : undefined); // where errors are shown
const closing = async (request) => { const answer = await request; $("about").close(); return answer; };

const remove = (ids) => change([() => api.remove(ids)], `Removed ${plural(ids.length, "photo")} of “${entry.name}”.`, {
  place: ofClass(), further: [forGood(() => api.remove(ids, true), plural(ids.length, "photo"))],
});

async function move(ids) {
  const to = await chooseName(`Move ${plural(ids.length, "photo")} to`, { not: entry.name, none: !entry.negatives, pictures: ids.map((id) => ofPhoto(id, entry.name)) });
  if (to) await change([() => api.move(ids, to)], `Moved ${plural(ids.length, "photo")} to “${to}”.`, { place: ofClass() });
}

async function rename(event) {
  event.preventDefault();
  const wanted = $("new-name").value.trim();
  if (wanted === entry.name) return $("about").close();
  const { name } = entry;
  const now = (answer) => answer.classes[0];
  let taken = false;
  const noted = (error) => { taken = error.code === "name_taken"; throw error; };
  await change([() => closing(api.rename(name, wanted).catch(noted))], (answer) => `“${name}” is now called “${now(answer)}”.`, { place: $("about-error"), fresh: now });
  if (taken) $("about-error").firstChild.append(button(`Join it with “${wanted}”`, "", () => join(name, wanted)));
}

const join = (name, to) => change([() => closing(api.join(name, to))], `Joined “${name}” with “${to}”.`, { place: $("about-error"), fresh: to });

function forget() {
  const { name } = entry;
  return change([() => closing(api.forget(name))], `Forgot “${name}”.`, {
    place: $("about-error"), further: [forGood(() => api.forget(name, true), `“${name}”`)],
  });
}

export function setUpAbout() {
  selection = new Selection($("about-photos"), (chosen) => tellChosen(chosen));
  const tellChosen = setUpBar($("about-bar"), () => selection);
  $("about-remove").addEventListener("click", () => remove([...selection.chosen]));
  $("about-move").addEventListener("click", () => move([...selection.chosen]));
  $("rename").addEventListener("submit", rename);
  $("forget").addEventListener("click", forget);
  $("more").addEventListener("click", () => { $("about").close(); addTo(entry.name); });
  whenChanged(() => { if ($("about").open) return showPhotos(); });
}

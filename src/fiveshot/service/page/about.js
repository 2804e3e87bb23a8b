// One class: its photos, its name, and forgetting it.

import * as api from "./api.js";
import { $, button, make, plural } from "./elements.js";
import { complain, quiet, tell } from "./notices.js";
import { refresh } from "./model.js";
import { enlarge, ofAddress } from "./pictures.js";
import { addTo } from "./teach.js";

const SURE = "Really? This cannot be undone";
let entry = null;

export function openClass(one) {
  entry = one;
  quiet();
  $("about-title").textContent = one.name;
  $("about-note").textContent = `${plural(one.photos, "photo")}${one.base ? ", a class of the base" : ""}`;
  $("new-name").value = one.name;
  $("about").showModal();
  showPhotos();
}

function showPhotos() {
  const addresses = Array.from({ length: entry.thumbnails }, (_, number) => api.thumbnail(entry.name, number, entry.version));
  const pictures = addresses.map((address, number) => ({
    show: (image) => api.showPicture(image, address), title: entry.name, note: `photo ${number + 1}`,
  }));
  $("about-photos").replaceChildren(...addresses.map((address, number) => {
    const title = `Photo ${number + 1} of ${entry.name}`;
    return make("li", "", button(ofAddress(address, title), "open", () => enlarge(pictures, number), `Enlarge ${title}`));
  }));
}

async function rename(event) {
  event.preventDefault();
  const wanted = $("new-name").value.trim();
  if (wanted === entry.name) return $("about").close();
  try {
    const answer = await api.rename(entry.name, wanted);
    $("about").close();
    tell(`“${entry.name}” is now called “${answer.classes[0]}”.`, { back: answer });
    await refresh(answer.classes[0]);
  } catch (error) {
    complain(error, $("about-error"));
  }
}

async function forget() {
  const { name } = entry;
  try {
    const answer = await api.forget(name);
    $("about").close();
    tell(`Forgot “${name}”.`, { back: { state: answer.state }, further: [forGood(() => erase(name))] });
    await refresh();
  } catch (error) {
    complain(error, $("about-error"));
  }
}

// The second step: nothing of it stays on the disk.
async function erase(name) {
  try {
    const answer = await api.forget(name, true);
    tell(answer.pending ? `“${name}”: ${answer.pending}.` : `“${name}” is erased, for good.`);
    await refresh();
  } catch (error) {
    complain(error);
  }
}

// A button that asks once more before it erases.
export function forGood(run) {
  const made = button("Erase for good", "", () => {
    if (made.textContent === SURE) run();
    else made.textContent = SURE;
  });
  return made;
}

export function setUpAbout() {
  $("rename").addEventListener("submit", rename);
  $("forget").addEventListener("click", forget);
  $("more").addEventListener("click", () => { $("about").close(); addTo(entry.name); });
}

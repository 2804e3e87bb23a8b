// The page: its four views, and what they share.

import * as api from "./api.js";
import { $, afterwards, plural } from "./elements.js";
import { openClass, openNegatives, setUpAbout } from "./about.js";
import { Gallery } from "./gallery.js";
import { setUpIntake, setUpZone } from "./intake.js";
import { model, readOnly, refresh, whenChanged } from "./model.js";
import { setUpNaming } from "./naming.js";
import { complain, quiet, setUpNotices } from "./notices.js";
import { setUpFrame } from "./frame.js";
import { setUpViewer } from "./pictures.js";
import * as sightings from "./sightings.js";
import * as sort from "./sort.js";
import { setUpStrictness } from "./strictness.js";
import * as teach from "./teach.js";
import * as review from "./review.js";
import * as trying from "./try.js";

const views = readOnly ? { try: trying } : { teach, try: trying, review, sort };
let view = null;
const gallery = new Gallery($("gallery"), { onOpen: openClass, onFound: tellFound, onError: complain });

function go() {
  const wanted = location.hash.slice(1);
  if (view && wanted && !(wanted in views)) return; // a place within the view
  view = wanted in views ? wanted : Object.keys(views)[0];
  quiet();
  for (const name of Object.keys(views)) {
    $(`view-${name}`).hidden = name !== view;
    const link = document.querySelector(`nav a[href="#${name}"]`);
    if (name === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${document.querySelector("nav [aria-current]").firstChild.data.trim()} · fiveshot`;
  if (view === "teach") gallery.draw();
  views[view].open?.();
}

function tellFound(total, search) {
  const empty = !total && !search;
  $("search").hidden = empty;
  $("found").textContent = search ? `${plural(total, "class")} with “${search}”` : "";
  $("none-yet").hidden = !empty;
}

function tellModel() {
  $("summary").textContent = model.classes ? plural(model.classes, "class") : "";
  $("negatives").hidden = !model.negatives;
  $("negatives").textContent = `None of these: ${plural(model.negatives || 0, "photo")}`;
}

function wire() {
  setUpNotices();
  setUpViewer();
  setUpFrame();
  setUpNaming();
  setUpAbout();
  setUpStrictness();
  for (const one of Object.values(views)) one.setUp();
  if (!readOnly) sightings.setUp();
  setUpZone($("teach-zone"), "teach");
  setUpZone($("try-zone"), "try", { once: true });
  setUpZone($("sort-zone"), "sort");
  setUpIntake((found) => views[view].take(found));
  addEventListener("hashchange", go);
  for (const close of document.querySelectorAll("dialog .close")) close.addEventListener("click", () => close.closest("dialog").close());
  $("search").addEventListener("input", afterwards(120, () => gallery.reload({ search: $("search").value.trim() }).catch(complain)));
  $("negatives").addEventListener("click", openNegatives);
  whenChanged(tellModel);
  whenChanged((fresh) => gallery.reload({ fresh }).catch(complain));
}

let asking = null; // several requests may find at the same time that a token is needed
api.whenTokenIsWanted((error) => {
  asking ||= new Promise((resolve) => {
    $("token-error").textContent = error.code === "wrong_token" ? "This token is wrong." : "";
    $("ask-token").showModal();
    $("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      api.useToken($("token").value.trim());
      $("token").value = "";
      $("ask-token").close();
      asking = null;
      resolve();
    }, { once: true });
    $("ask-token").addEventListener("cancel", (event) => event.preventDefault());
  });
  return asking;
});

api.whenLoading((error) => { $("summary").textContent = error.message; });

wire();
go();
refresh().catch(complain);

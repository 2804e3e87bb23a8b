// Sightings: photos without a name that `fiveshot watch` has kept, in groups of similar ones, to confirm or name.

import * as api from "./api.js";
import { $, button, inSlices, make, plural } from "./elements.js";
import { change, complain, forGood } from "./notices.js";
import { model, refresh, whenChanged } from "./model.js";
import { NONE, chooseName, likelyNames } from "./naming.js";
import { enlarge, ofAddress, opener, showKept } from "./pictures.js";
import { Selection, picker, setUpBar } from "./selection.js";

const PART = 200; // sightings in a request
const SHORT = 24; // photos of a group that are shown before "Show all"
let found = new Map(); // what is known about a sighting, by id; a group may have more
let groups = [];
let labels = new Map(); // the class that the model sees, by id; null: none
let total = 0;
let state; // of the model that made the suggestions
let tiles = new Map();
let selection = null;
let followed = null; // ids to give the focus to, the first that is still there
let round = 0;

// Requests the newest ones, or those that are older than the last one, and shows them.
async function look(older = false) {
  const mine = ++round;
  try {
    const answer = await api.sightings(PART, older ? [...found.keys()].at(-1) : undefined);
    if (mine !== round) return;
    if (older && answer.state !== state) return look(); // somebody has changed the model since
    const known = new Set(older ? groups.map((group) => group.id) : []);
    groups = [...(older ? groups : []), ...answer.groups.filter((group) => !known.has(group.id))];
    found = new Map([...(older ? found : []), ...answer.sightings.map((one) => [one.id, one])]);
    labels = new Map(groups.flatMap((group) => group.ids.map((id) => [id, group.label])));
    ({ total, state } = answer);
    await show(mine);
  } catch (error) {
    if (mine === round) complain(error, $("sightings-messages"));
  }
}

function tellCount(count) {
  $("sightings-count").hidden = !count;
  $("sightings-count").textContent = count.toLocaleString("en");
}

async function show(mine) {
  const list = $("sightings");
  followed = afterFocus() || followed;
  tiles = new Map([...tiles].filter(([id]) => labels.has(id)));
  for (const id of selection.chosen) if (!labels.has(id)) selection.chosen.delete(id);
  tellCount(total);
  $("sightings-none").hidden = total > 0;
  $("sightings-text").hidden = $("sightings-keys").hidden = !total;
  $("sightings-text").textContent = `${plural(total, "photo")} without a name, the newest first. What you confirm or name is learned.`;
  $("sightings-more").hidden = found.size >= total;
  const open = new Set(Array.from(list.querySelectorAll(".whole"), (one) => one.dataset.group));
  const still = () => mine === round;
  await inSlices([...list.children].reverse(), (one) => one.remove(), still);
  if (still()) await inSlices(groups, (group) => list.append(section(group, open.has(group.id))), still);
  if (!still()) return;
  selection.onChange(selection.chosen);
  if (followed && document.activeElement === document.body) selection.items().find(({ dataset }) => dataset.key === followed.find((id) => labels.has(id)))?.querySelector(".open").focus();
  followed = null;
}

// The ids from the one with the focus on, or of the group with the focus; the ones before it are last.
function afterFocus() {
  const focused = document.activeElement;
  const item = focused.closest("#sightings [data-key]") || focused.closest("#sightings .group")?.querySelector("[data-key]");
  if (!item) return null;
  const items = selection.items();
  const here = items.indexOf(item);
  return [...items.slice(here), ...items.slice(0, here).reverse()].map(({ dataset }) => dataset.key);
}

function section({ id, label, ids }, whole) {
  const title = make("h3", "", label ?? "Unknown", " ", make("span", "share", `${plural(ids.length, "photo")}`));
  const list = make("ul", "tiles");
  const made = make("section", "group", make("div", "bar", title, make("div", "actions", ...ways(ids, label ?? "unknown photos"))), list);
  made.dataset.group = id;
  const all = () => {
    made.classList.add("whole");
    return inSlices(ids.slice(SHORT), (one) => list.append(tile(one)));
  };
  list.append(...ids.slice(0, SHORT).map(tile));
  if (whole) all();
  else if (ids.length > SHORT) made.append(button(`Show all ${ids.length}`, "quiet", (event) => { event.target.remove(); all(); }));
  made.style.containIntrinsicSize = `auto ${80 + 150 * Math.ceil(Math.min(ids.length, SHORT) / 8)}px`;
  return made;
}

// The buttons for a group.
function ways(ids, name) {
  const suggested = labels.get(ids[0]) !== null;
  const right = suggested ? [button("Right", "main", () => confirm(ids), `Right: ${name}`)] : [];
  return [...right, button(suggested ? "No, it is …" : "It is …", "", () => itIs(ids)), button("None of these", "", () => none(ids)), button("Dismiss", "quiet", () => dismiss(ids))];
}

function tile(id) {
  let item = tiles.get(id);
  if (!item) {
    item = make("li", "", opener(ofAddress(api.sighting(id), id), id, () => enlargeAll(item)), picker(id), make("p", "small muted"));
    item.dataset.key = id;
    tiles.set(id, item);
  }
  item.classList.toggle("chosen", selection.chosen.has(id));
  item.querySelector(".pick").checked = selection.chosen.has(id);
  item.lastChild.textContent = found.has(id) ? time(found.get(id).seen) : id;
  item.title = about(id);
  return item;
}

function time(seen) {
  const when = new Date(seen);
  return Number.isNaN(when.getTime()) ? seen : when.toLocaleString(undefined, { day: "numeric", month: "short", hour: "numeric", minute: "2-digit" });
}

// When and where a sighting was seen, and what the model said then.
function about(id) {
  const one = found.get(id);
  if (!one) return "";
  const { label, unknown, between } = one.prediction;
  const then = label ?? (unknown ? "unknown" : between?.length ? `unsure: ${between.join(" or ")}` : "unsure");
  return `${time(one.seen)}, ${one.region ? `${one.region} of ` : ""}${one.source}: ${then}`;
}

function enlargeAll(item) {
  const ids = Array.from(item.parentElement.children, (one) => one.dataset.key);
  enlarge(ids.map(picture), ids.indexOf(item.dataset.key));
}

function picture(id) {
  const label = labels.get(id);
  const right = label === null ? [] : [[`It is ${label}`, () => confirm([id])]];
  return {
    show: showKept(api.sighting(id, true), api.sighting(id)), title: `${id}: ${label ?? "unknown"}`, note: about(id),
    ways: () => [...right, [label === null ? "It is …" : "No, it is …", () => itIs([id])], ["None of these", () => none([id])], ["Dismiss", () => dismiss([id]), "quiet"]],
  };
}

const put = (request, said, given) => change([request], said, { place: $("sightings-messages"), ...given }).then((steps) => steps || refresh().catch(complain));

function confirm(ids) {
  const some = ids.filter((id) => labels.get(id) !== null);
  if (!some.length) return complain("The model suggests no class for these photos. Say what they show.", $("sightings-messages"));
  const names = new Set(some.map((id) => labels.get(id)));
  const as = names.size === 1 ? `“${[...names][0]}”` : `what was suggested, ${plural(names.size, "class")}`;
  return put(() => api.confirmSightings(some, state), `Learned ${plural(some.length, "photo")} as ${as}.`);
}

async function itIs(ids) {
  const title = ids.length > 1 ? `What do ${plural(ids.length, "photo")} show?` : "What does this photo show?";
  // What the model said then; it may know more now, so the percentages would mislead.
  const likely = likelyNames(ids.flatMap((id) => found.get(id)?.prediction || []));
  const name = await chooseName(title, { candidates: likely.map(({ label }) => ({ label })), not: ids.length === 1 ? labels.get(ids[0]) ?? "" : "", pictures: ids.map((id) => ofAddress(api.sighting(id), id)) });
  if (name) await put(() => api.nameSightings(ids, name), `Learned ${plural(ids.length, "photo")} as “${name}”.`, { fresh: name });
}

const none = (ids) => put(() => api.nameSightings(ids, NONE), `Learned ${plural(ids.length, "photo")} as none of these.`);
const dismiss = (ids) => put(() => api.dismissSightings(ids), `Dismissed ${plural(ids.length, "photo")}.`, {
  further: [forGood(() => api.dismissSightings(ids, true), plural(ids.length, "photo"))],
});

const KEYS = { r: confirm, n: itIs, 0: none, d: dismiss };

// A key is for the photo with the focus, and for the others that are selected with it.
function key(event) {
  const id = event.target.closest("[data-key]")?.dataset.key;
  const run = KEYS[event.key.toLowerCase()];
  if (!id || !run || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  run(selection.chosen.has(id) ? [...selection.chosen] : [id]);
}

export const open = () => look();

export function setUp() {
  selection = new Selection($("sightings"), (chosen) => tellChosen(chosen));
  const tellChosen = setUpBar($("sightings-bar"), () => selection);
  const chosen = () => [...selection.chosen];
  $("sightings").addEventListener("keydown", key);
  $("sightings-right").addEventListener("click", () => confirm(chosen()));
  $("sightings-is").addEventListener("click", () => itIs(chosen()));
  $("sightings-no").addEventListener("click", () => none(chosen()));
  $("sightings-dismiss").addEventListener("click", () => dismiss(chosen()));
  $("sightings-more").addEventListener("click", () => look(true));
  whenChanged(() => {
    tellCount(model.sightings || 0);
    if (!$("view-sort").hidden) look();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh().catch(() => {}); }); // a watch may have kept more
}

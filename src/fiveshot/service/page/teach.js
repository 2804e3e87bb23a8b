// Teach: photos and a name, or whole folders of classes.

import * as api from "./api.js";
import { $, afterwards, button, grouped, inSlices, make, message, plural, quoted, sentence } from "./elements.js";
import { partNote, partWays } from "./frame.js";
import { complain, quiet, tell, tellGone } from "./notices.js";
import { refresh } from "./model.js";
import { enlarge, openerOfFile, showFile } from "./pictures.js";
import { partsOf } from "./sending.js";

const PEEK = 4; // pictures of a folder
let chosen = []; // photos for the name in the form
let folders = []; // {name, photos, item}: classes that came as folders
let working = false;

export function take(found) {
  const named = grouped(found, (one) => one.folder);
  // A single folder is treated like its photos: its name goes into the form and can be changed.
  const alone = named.size === 1 && !folders.length && !chosen.length;
  for (const [folder, ones] of named) {
    const photos = ones.map((one) => one.file);
    if (folder && !(alone && !$("name").value.trim())) addFolder(folder, photos);
    else {
      if (folder) { $("name").value = folder; noteName(); }
      chosen.push(...photos);
    }
  }
  show();
}

function addFolder(name, photos) {
  const known = folders.find((one) => one.name === name);
  if (known) known.photos.push(...photos);
  else folders.push({ name, photos });
}

function show() {
  $("chosen").replaceChildren();
  const pictures = chosen.map((file) => ({ show: showFile(file), title: file.name, note: partNote(file), ways: () => partWays(file, show) }));
  inSlices(chosen.map((file, index) => [file, index]), ([file, index]) => {
    const open = openerOfFile(file, () => enlarge(pictures, index));
    const remove = button("×", "remove", () => {
      leaveOut(`Left out ${file.name}.`, () => { chosen = chosen.filter((other) => other !== file); });
      setTimeout(() => ($("chosen").querySelectorAll(".remove")[index] || $("learn")).focus());
    }, `Remove ${file.name}`);
    $("chosen").append(make("li", file.box ? "part" : "", open, remove));
  });
  $("folders").replaceChildren();
  inSlices(folders, (one) => $("folders").append(folderItem(one)));
  $("folders-box").hidden = !folders.length;
  $("clear").hidden = !chosen.length && !folders.length;
  tellReady();
}

function folderItem(one) {
  const name = Object.assign(make("input"), { type: "text", value: one.name, maxLength: 200, autocomplete: "off" });
  name.setAttribute("aria-label", `Name of the class in the folder ${one.name}`);
  name.addEventListener("input", () => { one.name = name.value; tellReady(); });
  const pictures = one.photos.map((file) => ({ show: showFile(file), title: file.name }));
  const peek = make("div", "peek", ...one.photos.slice(0, PEEK).map((file, index) =>
    openerOfFile(file, () => enlarge(pictures, index))));
  const remove = button("×", "quiet close", () => leaveOut(`Left out ${one.name}.`, () => { folders = folders.filter((other) => other !== one); }), `Leave out ${one.name}`);
  one.item = make("li", "", peek, make("div", "grow", name, make("p", "muted small", plural(one.photos.length, "photo"))), remove);
  return one.item;
}

// Undo adds photos that were left out to the present ones.
function leaveOut(said, work) {
  const before = [chosen, folders];
  work();
  show();
  tellGone("leaving out", said, () => {
    const [photos, named] = before;
    chosen = [...photos, ...chosen.filter((one) => !photos.includes(one))];
    folders = [...named, ...folders.filter((one) => !named.includes(one))];
    show();
  });
}

// The classes to learn: from the form, then from the folders.
function wanted() {
  const name = $("name").value.trim();
  const form = chosen.length ? [{ name, photos: chosen, form: true }] : [];
  return [...form, ...folders];
}

function missing() {
  if (!chosen.length && !folders.length) return $("name").value.trim() ? ["Add photos of it: about five are good.", ".choose"] : ["Give the class a name.", "#name"];
  if (chosen.length && !$("name").value.trim()) return ["Give the class a name.", "#name"];
  if (folders.some((one) => !one.name.trim())) return ["Give every folder a name, or leave it out.", "#folders input:placeholder-shown"];
  return null;
}

function tellReady() {
  const photos = wanted().reduce((sum, one) => sum + one.photos.length, 0);
  const several = folders.length > 1 || (folders.length && chosen.length);
  const what = several ? `${plural(wanted().length, "class")} from ${plural(photos, "photo")}` : `from ${plural(photos, "photo")}`;
  $("learn").textContent = photos ? `Learn ${what}` : "Learn";
  $("learn").setAttribute("aria-disabled", String(working || Boolean(missing())));
}

function progress(text, share) {
  $("upload").hidden = false;
  if (share === null) $("progress").removeAttribute("value");
  else $("progress").value = 100 * share;
  $("progress-text").textContent = text;
}

async function learn(event) {
  event.preventDefault();
  if (working) return;
  const lacks = missing();
  if (lacks) {
    complain(lacks[0], $("teach-result"));
    $("view-teach").querySelector(lacks[1])?.focus();
    return;
  }
  working = true;
  tellReady();
  $("teach-result").replaceChildren();
  const all = wanted();
  const reports = [];
  const failed = [];
  for (const [place, one] of all.entries()) {
    const which = all.length > 1 ? `${place + 1} of ${all.length} classes: ` : "";
    try {
      reports.push(await learnOne(one, (text, share) => progress(which + text, share)));
      if (one.form) [chosen, $("name").value] = [[], ""];
      else folders = folders.filter((other) => other !== one);
    } catch (error) {
      failed.push([one, error]);
      if (error.code === "unreachable") break;
    }
  }
  working = false;
  $("upload").hidden = true;
  $("name-note").textContent = "";
  show();
  tellLearned(reports, failed);
  await refresh(reports.at(-1)?.name).catch(complain);
}

// A class with more photos than fit into a request is learned in parts.
async function learnOne({ name, photos }, tellHow) {
  const parts = partsOf(photos);
  const done = { added: 0, steps: 0, created: false, warnings: [] };
  for (const [place, part] of parts.entries()) {
    const report = await api.learn(name.trim(), part, (loaded, total) => {
      const sent = loaded >= total;
      const share = (place + loaded / total) / parts.length;
      tellHow(sent && place === parts.length - 1 ? "looking at the photos" : `sending, ${Math.round(100 * share)} %`, sent ? null : share);
    });
    Object.assign(done, report, {
      added: done.added + report.added,
      created: done.created || report.created,
      steps: done.steps + (report.added ? 1 : 0),
      warnings: [...new Set([...done.warnings, ...report.warnings])],
    });
  }
  return done;
}

function tellLearned(reports, failed) {
  const said = [];
  const steps = reports.reduce((sum, one) => sum + one.steps, 0);
  if (reports.length === 1) said.push(learnedText(reports[0]), ...doubts(reports[0]));
  else if (reports.length) {
    const photos = reports.reduce((sum, one) => sum + one.added, 0);
    said.push(message("good", `Learned ${plural(reports.length, "class")}`, `from ${plural(photos, "photo")}: ${quoted(reports.map((one) => one.name))}.`));
    const doubtful = reports.filter((one) => doubts(one).length);
    if (doubtful.length) {
      const details = make("details", "", make("summary", "", `${plural(doubtful.length, "class")} with warnings`));
      for (const one of doubtful) details.append(make("h3", "", one.name), ...doubts(one));
      said.push(details);
    }
  }
  if (steps) {
    const names = reports.map((one) => one.name);
    tell(`Learned ${quoted(names)}.`, { back: { state: reports.at(-1).state, steps, then: () => $("teach-result").replaceChildren() } });
  }
  for (const [one, error] of failed) {
    const box = message("bad", all(failed, reports) ? `${one.name}:` : "", error.message);
    const bad = unusable(one, error);
    if (bad.length && bad.length < one.photos.length) {
      const them = bad.length === 1 ? "it" : `these ${bad.length}`;
      box.append(button(`Leave ${them} out and learn the rest`, "", () => learnWithout(one, bad)));
    }
    said.push(box);
  }
  $("teach-result").replaceChildren(...said);
}

// The photos that an error is about. None where it does not tell photos of one name apart.
function unusable(one, { names = [] }) {
  const bad = one.photos.filter((photo) => names.includes(api.sentName(photo)));
  return bad.length === names.length ? bad : [];
}

function learnWithout(one, bad) {
  const others = (photos) => photos.filter((photo) => !bad.includes(photo));
  const left = `Left out ${bad.length === 1 ? bad[0].name : plural(bad.length, "photo")}.`;
  leaveOut(left, () => {
    if (one.form) chosen = others(chosen);
    else folders = folders.map((other) => (other === one ? { ...one, photos: others(one.photos) } : other));
  });
  $("teach-form").requestSubmit();
}

const all = (failed, reports) => failed.length + reports.length > 1;

function learnedText(report) {
  if (!report.added) return message("", `Nothing new for ${report.name}:`, "it knows these photos already.");
  if (report.created) return message("good", `Learned ${report.name}`, `from ${plural(report.added, "photo")}.`);
  return message("good", `Added ${plural(report.added, "photo")} to ${report.name}:`, `it has ${plural(report.photos, "photo")} now.`);
}

function doubts(report) {
  const said = report.warnings.map((text) => message("warn", "", sentence(`look again: ${text}`)));
  if (report.confusion || !["close", "confused"].includes(report.verdict)) return said; // otherwise a warning says it
  const how = report.verdict === "confused" ? "very much " : "";
  return [message("warn", `Looks ${how}like ${report.nearest}.`, "They may be mistaken for each other; more photos of both help."), ...said];
}

const noteName = afterwards(250, async () => {
  const name = $("name").value.trim().normalize("NFC");
  const found = name ? await api.classes(name, 0, 50).catch(() => null) : null;
  const known = found?.classes.find((entry) => entry.name === name);
  if ($("name").value.trim().normalize("NFC") !== name) return;
  $("name-note").textContent = known ? `Known already, from ${plural(known.photos, "photo")}: these will be added.` : "";
});

// Goes from a class to adding photos of it.
export function addTo(name) {
  location.hash = "teach";
  $("name").value = name;
  noteName();
  tellReady();
  $("view-teach").querySelector(".choose").focus();
}

export function setUp() {
  $("teach-form").addEventListener("submit", learn);
  $("clear").addEventListener("click", () => {
    leaveOut("Cleared.", () => { [chosen, folders] = [[], []]; });
    $("view-teach").querySelector(".choose").focus();
  });
  $("name").addEventListener("input", () => { quiet(); noteName(); tellReady(); });
  show();
}

// Take sorted photos home: a table, or the photos themselves in folders, as a ZIP archive that is made here.

import { $, plural } from "./elements.js";
import { complain } from "./notices.js";
import { zipped } from "./zip.js";

// A text that a spreadsheet would take for a formula begins with an apostrophe.
const cell = (value) => {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export const csvOf = (lines) => new Blob(["\ufeff", lines.map((line) => `${line.map(cell).join(",")}\r\n`).join("")], { type: "text/csv" }); // Excel needs the mark to read UTF-8

export function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { download: name, href: URL.createObjectURL(blob) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// `places()` asks the service where each photo belongs, `fileOf(number)` is the photo, `bad()` those that cannot be used.
export function setUp({ places, fileOf, bad }) {
  const ways = [$("sort-csv"), $("sort-zip")];
  const during = async (work) => {
    ways.forEach((way) => { way.disabled = true; });
    try {
      await work((await places()).places.filter((one) => fileOf(one.photo)));
    } catch (error) {
      complain(error, $("sort-messages"));
    }
    ways.forEach((way) => { way.disabled = false; });
    $("sort-packing").textContent = "";
  };
  $("sort-csv").addEventListener("click", () => during((all) => {
    const lines = [["photo", "class", "probability", "unsure", "group", "learned", "place", "error"]];
    for (const one of all) lines.push([fileOf(one.photo).name, one.label, one.probability, one.unsure, one.group, one.learned, one.place]);
    for (const { photo, reason } of bad()) lines.push([photo.name, "", "", "", "", "", reason]);
    save(csvOf(lines), "sorted.csv");
  }));
  $("sort-zip").addEventListener("click", () => during(async (all) => {
    const entries = all.map((one) => ({ name: one.place, file: fileOf(one.photo) }));
    const tell = (done) => { $("sort-packing").textContent = `Packing: ${done.toLocaleString("en")} of ${plural(entries.length, "photo")}`; };
    save(await zipped(entries, tell), "sorted.zip");
  }));
}

// The service's API: one function for each request, and every error is a sentence.

import { sentence } from "./elements.js";

const PATIENCE = 20; // retries while the service is busy
let token = sessionStorage.getItem("fiveshot-token");
let askForToken = () => Promise.reject(new Failure("no_token", "This service needs a token.", ""));

let tellLoading = () => {}; // the model is not loaded yet: the request waits

export class Failure extends Error {
  constructor(code, message, hint, names = []) {
    super(`${sentence(message, names)} ${sentence(hint || "", names)}`.trim());
    this.code = code;
    this.names = names; // of the photos or values that it is about
  }
}

export function whenTokenIsWanted(ask) {
  askForToken = ask;
}

export function whenLoading(tell) {
  tellLoading = tell;
}

export function useToken(value) {
  token = value;
  sessionStorage.setItem("fiveshot-token", value);
}

export const path = (name) => `/v1/classes/${encodeURIComponent(name)}`;

function failure(status, text) {
  try {
    const { code, message, hint, details = [] } = JSON.parse(text);
    return new Failure(code, message, hint, details.map((one) => one.name));
  } catch {
    return new Failure("failed", `The service answered with status ${status}`, "See its log");
  }
}

const unreachable = () => new Failure("unreachable", "The service cannot be reached", "Is it still running?");

// XMLHttpRequest, because fetch does not report upload progress.
function send(method, url, { body, headers = {}, onProgress, kind = "" } = {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    request.responseType = kind;
    if (token) request.setRequestHeader("Authorization", `Bearer ${token}`);
    for (const [key, value] of Object.entries(headers)) request.setRequestHeader(key, value);
    if (onProgress) request.upload.onprogress = (event) => onProgress(event.loaded, event.total);
    request.onload = async () => {
      if (request.status < 300) return resolve(request.response);
      const text = kind === "blob" ? await request.response.text() : request.responseText;
      reject(failure(request.status, text));
    };
    request.onerror = () => reject(unreachable());
    request.send(body);
  });
}

// Waits until the model is loaded, so that photos are not uploaded again and again.
async function untilLoaded(error) {
  while (error) {
    if (error.code !== "loading") throw error;
    tellLoading(error);
    await pause(500);
    error = await send("GET", "/v1/ready").then(() => null, (still) => still);
  }
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function call(method, url, options, tries = 0) {
  try {
    return await send(method, url, options);
  } catch (error) {
    if (error.code === "loading") await untilLoaded(error);
    else if (["busy", "too_often"].includes(error.code) && tries < PATIENCE) await pause(500);
    else if (error.code === "no_token" || error.code === "wrong_token") await askForToken(error);
    else throw error;
    return call(method, url, options, tries + 1);
  }
}

const json = async (...request) => JSON.parse(await call(...request));

function form(photos) {
  const data = new FormData();
  for (const photo of photos) data.append("photos", photo, photo.name || "photo.jpg");
  if (photos.some((photo) => photo.box)) data.append("boxes", JSON.stringify(photos.map((photo) => (photo.box ? [photo.box] : null))));
  return data;
}

// The name of a photo as the service repeats it: browsers encode some characters in the names of files.
export const sentName = (photo) => photo.name.slice(0, 100).replaceAll('"', "%22");

const asJson = (value) => ({ body: JSON.stringify(value), headers: { "Content-Type": "application/json" } });
const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16)).join("");

// After a lost connection it is not known what was done, so the request is repeated with the same key.
export async function learn(name, photos, onProgress) {
  const request = () => json("POST", `${path(name)}/photos`, {
    body: form(photos), headers: { "Idempotency-Key": key }, onProgress,
  });
  const key = newKey();
  try {
    return await request();
  } catch (error) {
    if (error.code !== "unreachable") throw error;
    return request();
  }
}

export const predict = (photos, { why = 0 } = {}) => json("POST", `/v1/predict?top=5${why ? `&why=${why}` : ""}`, { body: form(photos) });
export const correct = (photos, name) => json("POST", `/v1/correct?name=${encodeURIComponent(name)}`, { body: form(photos) });
export const learnNone = (photos) => json("POST", "/v1/negatives", { body: form(photos) });
export const negatives = () => json("GET", "/v1/negatives");
export const classes = (search, offset, limit) =>
  json("GET", `/v1/classes?search=${encodeURIComponent(search)}&offset=${offset}&limit=${limit}`);
export const model = () => json("GET", "/v1/model");
export const setModel = (settings) => json("PATCH", "/v1/model", asJson(settings));
export const rejection = (rate) => json("GET", `/v1/rejection?rate=${rate}`);
// With a state, only the change that led to this state is undone.
export const undo = (state) => json("POST", state === undefined ? "/v1/undo" : `/v1/undo?state=${state}`);
export const photosOf = (name) => json("GET", `${path(name)}/photos`);
export const picture = (id, kept) => `/v1/photos/${id}${kept ? "?kept=true" : ""}`;
export const remove = (ids, forGood = false) => json("POST", "/v1/photos/remove", asJson({ ids, for_good: forGood }));
export const join = (name, to) => json("POST", "/v1/photos/move", asJson({ all_of: name, to }));
export const move = (ids, to) => json("POST", "/v1/photos/move", asJson({ ids, to }));
export const review = () => json("GET", "/v1/review");
export const keep = (ids, finding) => json("POST", "/v1/review/keep", asJson({ ids, finding }));
export const startSorting = () => json("POST", "/v1/sort");
export const addToSorting = (id, photos) => json("POST", `/v1/sort/${id}/photos`, { body: form(photos) });
export const sorting = (id) => json("GET", `/v1/sort/${id}`);
export const learnSorted = (id, photos, name) => json("POST", `/v1/sort/${id}/learn`, asJson({ photos, name }));
export const sortedPicture = (id, number) => `/v1/sort/${id}/photos/${number}`;
export const sortedPlaces = (id) => json("GET", `/v1/sort/${id}/places`);
export const sightings = (limit, before) => json("GET", `/v1/sightings?limit=${limit}${before ? `&before=${before}` : ""}`);
export const sighting = (id, kept) => `/v1/sightings/${id}${kept ? "?kept=true" : ""}`;
export const nameSightings = (ids, name) => json("POST", "/v1/sightings/name", asJson({ ids, name }));
export const confirmSightings = (ids, state) => json("POST", "/v1/sightings/confirm", asJson({ ids, state }));
export const dismissSightings = (ids, forGood = false) => json("POST", "/v1/sightings/dismiss", asJson({ ids, for_good: forGood }));
export const endSorting = (id) => call("DELETE", `/v1/sort/${id}`);
export const forget = (name, purge) => json("DELETE", path(name) + (purge ? "?for_good=true" : ""));
export const rename = (name, wanted) => json("PATCH", path(name), asJson({ name: wanted }));
export const thumbnail = (name, number, version) => `${path(name)}/photos/${number}?v=${version}`;

// An <img> cannot send a token, so pictures that need one are fetched here.
export async function showPicture(image, address) {
  if (!token) {
    image.src = address;
    return;
  }
  const blob = await call("GET", address, { kind: "blob" });
  image.src = URL.createObjectURL(blob);
  image.onload = () => URL.revokeObjectURL(image.src);
}

// Sends photos to the service in parts, one part ahead, with progress, stop and continue.

import { button, make, plural } from "./elements.js";
import { complain } from "./notices.js";
import { model } from "./model.js";

const ABOUT_PHOTOS = ["bad_photo", "too_large"]; // errors of single photos

// Takes as many photos from a list as fit into a request.
function nextPart(photos, most = Infinity) {
  const { limits } = model;
  let [count, bytes] = [0, 0];
  while (count < photos.length && count < Math.min(most, limits.photos)) {
    bytes += photos[count].size + 1024; // including the lines around it
    if (count && bytes > limits.body_bytes) break;
    count += 1;
  }
  return photos.splice(0, count);
}

// All photos, in parts of this size.
export function partsOf(photos) {
  const left = [...photos];
  const parts = [];
  while (left.length) parts.push(nextPart(left));
  return parts;
}

// If one photo cannot be used, the others are sent again without it.
async function each(part, request) {
  try {
    const values = await request(part);
    return part.map((photo, index) => ({ photo, value: values[index] }));
  } catch (error) {
    if (!ABOUT_PHOTOS.includes(error.code)) throw error;
    if (part.length === 1) return [{ photo: part[0], error }];
    const half = part.length >> 1;
    return [...await each(part.slice(0, half), request), ...await each(part.slice(half), request)];
  }
}

export class Sending {
  // `request` sends a part and returns a value for each photo; `onAnswers` gets {photo, value} or {photo, error}.
  constructor(box, { most, request, onAnswers, onDone, verb }) {
    Object.assign(this, { box, most, request, onAnswers, onDone, verb, queue: [], ahead: [], done: 0, total: 0, round: 0, working: false, stopped: false });
    this.bar = Object.assign(make("progress"), { max: 1, value: 0 });
    this.bar.setAttribute("aria-label", verb);
    this.text = make("span", "muted");
    this.way = button("Stop", "", () => (this.working && !this.stopped ? this.stop() : this.go()));
    box.append(this.bar, this.text, this.way);
    box.hidden = true;
  }

  add(photos) {
    if (!this.working && !this.queue.length) [this.done, this.total] = [0, 0];
    this.queue.push(...photos);
    this.total += photos.length;
    return this.go();
  }

  stop() {
    this.stopped = true;
    this.tell();
  }

  // Cancels everything, including running requests; returns the photos without an answer.
  clear() {
    const left = [...this.ahead.flatMap(({ part }) => part), ...this.queue];
    Object.assign(this, { queue: [], ahead: [], done: 0, total: 0, working: false });
    this.round += 1;
    this.stop();
    return left;
  }

  async go() {
    this.stopped = false;
    this.tell();
    if (this.working) return;
    this.working = true;
    [this.began, this.before] = [performance.now(), this.done];
    const { round, ahead } = this;
    try {
      while (ahead.length || (this.queue.length && !this.stopped)) {
        while (ahead.length < 2 && this.queue.length && !this.stopped) {
          const part = nextPart(this.queue, this.most);
          ahead.push({ part, answers: each(part, this.request) });
          ahead.at(-1).answers.catch(() => {}); // reported in its turn
        }
        const answers = await ahead[0].answers;
        if (round !== this.round) return;
        ahead.shift();
        this.done += answers.length;
        await this.onAnswers(answers);
        if (round !== this.round) return;
        this.tell();
      }
    } catch (error) {
      if (round !== this.round) return;
      this.queue.unshift(...ahead.splice(0).flatMap(({ part }) => part));
      this.stopped = true;
      complain(error, this.place);
    }
    this.working = false;
    this.tell();
    this.onDone?.();
  }

  tell() {
    const left = this.total - this.done;
    this.box.hidden = !left || !this.total;
    this.bar.value = this.total ? this.done / this.total : 0;
    const rate = (this.done - this.before) / ((performance.now() - this.began) / 1000);
    const pace = this.working && rate > 0 && this.done - this.before > 8 ? `, ${rate < 10 ? rate.toFixed(1) : Math.round(rate)} a second, ${remaining(left / rate)}` : "";
    const count = `${this.done.toLocaleString("en")} of ${plural(this.total, "photo")}`;
    this.text.textContent = this.stopped ? `Stopped: ${count}` : `${this.verb}: ${count}${pace}`;
    this.way.textContent = this.stopped ? "Continue" : "Stop";
  }
}

const remaining = (seconds) => (seconds < 90 ? `${Math.ceil(seconds)} s left` : `${Math.round(seconds / 60)} min left`);

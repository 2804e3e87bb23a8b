// What the numbers of the graph mean: a class, a group of classes, or that a photo is unlike all of them.

// Returns {label, probability, unknown, canBeUnknown, group, candidates} of one photo, as `fiveshot predict` does. If it
// is unsure, also between: its two most probable classes.
export function answerOf(probabilities, familiarity, model) {
  const order = Array.from(probabilities.keys()).sort((a, b) => probabilities[b] - probabilities[a] || a - b);
  const candidates = order.slice(0, 5).map((number) => ({
    label: model.classes[number], probability: order.length === 1 ? null : probabilities[number], // nothing to compare it with
  }));
  const threshold = model.unknown_below[order[0]];
  const canBeUnknown = threshold !== null;
  if (canBeUnknown && familiarity < threshold) {
    return { label: null, probability: candidates[0].probability, unknown: true, canBeUnknown, group: false, candidates };
  }
  const levels = chain(probabilities, model);
  const chances = levels.length ? levels : candidates.slice(0, 1);
  const sure = chances.findLast((level) => level.probability === null || level.probability >= model.sure);
  if (!sure) {
    const between = candidates.slice(0, 2).map((one) => one.label);
    return { label: null, probability: candidates[0].probability, unknown: false, between, canBeUnknown, group: false, candidates };
  }
  const group = levels.length > 0 && sure !== levels.at(-1);
  return { label: sure.label, probability: sure.probability, unknown: false, canBeUnknown, group, candidates };
}

// The most probable group, in it the most probable one below, down to a class; nothing without groups.
function chain(probabilities, { classes, groups }) {
  const found = [];
  const share = (numbers) => numbers.reduce((sum, number) => sum + probabilities[number], 0);
  let here = groups[""];
  while (here && (found.length || here.inner.length)) {
    const below = [
      ...here.own.map((number) => ({ label: classes[number], probability: probabilities[number], next: null })),
      ...here.inner.map((name) => ({ label: name, probability: Math.min(1, share(groups[name].members)), next: groups[name] })),
    ];
    const best = below.reduce((first, one) => (one.probability > first.probability ? one : first));
    found.push(best);
    here = best.next;
  }
  return found;
}

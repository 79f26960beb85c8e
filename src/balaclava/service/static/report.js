/**
 * What a browser needs to report to a local policy: a reward never leaves the device, a report of
 * it does, made private here. An ES module without dependencies.
 *
 *     import { reportOnce } from "./report.js";
 *     // rule: "report" of GET /v1/experiments/{name}; decision: as the service answered it
 *     const report = await reportOnce(decision, rule, reward);
 *     // send {"report": report} to your server, which puts it on /v1/decisions/{id}/reward
 *
 * The noise is exact: integers of any size and crypto.getRandomValues, no floating point. The law
 * is that of `policy.report` in Python (balaclava/privacy: secure.py has the proof, laplace.py and
 * randomized_response.py the two mechanisms). Every rule is as private as its epsilon says,
 * whatever level or range comes with it; what a device must know by itself is the epsilon that its
 * owner was promised: give it as `promised`, and a rule that asks for more is refused.
 *
 * A second report of the same reward costs epsilon again. `reportOnce` keeps in the browser
 * (IndexedDB, one transaction, so that two tabs cannot both draw) what it reported for a decision,
 * and repeats it ever after. A device whose storage is cleared, or a private window that is closed,
 * forgets: a report made after that is a second one, and the service keeps the first.
 */

const GRID_BITS = 20;
const LARGEST_REWARD = 1e150;
const SMALLEST_LEVEL = 1e-250;
const LARGEST_LEVEL = 1e250;
const SMALLEST_EPSILON = 1e-100;
const LARGEST_EPSILON = 1e100;
const LARGEST_STEPS = 2n ** 63n;

/** A fresh report of one reward: a number that is fit to leave the device. */
export function report(rule, reward, level = null, promised = null) {
  const epsilon = checkedEpsilon(rule, promised);
  const value = checkedReward(rule, reward);
  if (rule.kind === "truncated-laplace") {
    const bound = checkedLevel(level);
    return laplaceReport(truncated(value, bound), 2 * bound, epsilon);
  }
  const x = ontoUnitGrid(value, rule.range);
  return rule.kind === "bit" ? bitReport(x, epsilon) : laplaceReport(x, 1, epsilon);
}

/**
 * The report of this decision: made once, the same in every tab and after every reload.
 *
 * @param {{decision_id: string, level?: number}} decision as the service answered it
 * @param {object} rule "report" of the experiment
 * @param {number|boolean} reward stays here
 * @param {{promised?: number}} options promised: the largest epsilon that the owner agreed to
 */
export async function reportOnce(decision, rule, reward, { promised = null } = {}) {
  const id = decision?.decision_id;
  if (typeof id !== "string" || id === "") {
    throw new TypeError("the decision has no decision_id; give it as the service answered it");
  }
  const fresh = report(rule, reward, decision.level ?? null, promised);
  return remembered(id, fresh);
}

// What was reported

/** What is kept for the decision; `fresh`, kept from now on, if there is nothing. */
async function remembered(id, fresh) {
  const memory = await openMemory();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = memory.transaction("reports", "readwrite", { durability: "strict" });
      const reports = transaction.objectStore("reports");
      let answer = fresh;
      const earlier = reports.get(id);
      earlier.onsuccess = () => {
        if (earlier.result === undefined) reports.add(fresh, id);
        else answer = earlier.result;
      };
      transaction.oncomplete = () => resolve(answer); // nothing leaves before it is kept
      transaction.onabort = () => reject(noMemory(transaction.error));
    });
  } finally {
    memory.close();
  }
}

function openMemory() {
  return new Promise((resolve, reject) => {
    let request;
    try {
      request = indexedDB.open("balaclava", 1);
    } catch (error) {
      reject(noMemory(error)); // storage is blocked
      return;
    }
    request.onupgradeneeded = () => request.result.createObjectStore("reports");
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(noMemory(request.error));
  });
}

function noMemory(cause) {
  return new Error(
    "this browser cannot keep what was reported, so a reload would pay epsilon again; report " +
      "nothing, or call report() and accept that",
    { cause },
  );
}

// What is allowed; no message repeats a reward

function checkedEpsilon(rule, promised) {
  const kinds = ["bit", "laplace", "truncated-laplace"];
  if (!kinds.includes(rule?.kind) || rule.grid_bits !== GRID_BITS) {
    throw new TypeError("this rule is not known here; use the report.js that the service sends");
  }
  const { epsilon } = rule;
  if (!(typeof epsilon === "number" && epsilon >= SMALLEST_EPSILON && epsilon <= LARGEST_EPSILON)) {
    throw new RangeError("the rule's epsilon is not allowed; give a number above 0");
  }
  if (promised !== null && !(epsilon <= promised)) {
    throw new RangeError(
      `the rule asks for epsilon ${epsilon}, and no more than ${promised} was promised; nothing ` +
        "was reported",
    );
  }
  return epsilon;
}

function checkedReward(rule, reward) {
  const value = typeof reward === "boolean" ? Number(reward) : reward;
  if (typeof value !== "number" || !Number.isFinite(value)) {
    throw new TypeError("the reward is not a finite number");
  }
  if (rule.kind === "truncated-laplace") return value;
  const [low, high] = checkedRange(rule);
  if (rule.outside !== "clip" && !(low <= value && value <= high)) {
    throw new RangeError(
      `the reward is outside what is allowed (its value is withheld); give one from ${low} to ` +
        `${high}`,
    );
  }
  return value;
}

function checkedRange(rule) {
  const [low, high] = Array.isArray(rule.range) ? rule.range : [];
  if (!(typeof low === "number" && low < high && Number.isFinite(high - low))) {
    throw new RangeError("the rule's range is not allowed; give [smallest, largest]");
  }
  return [low, high];
}

function checkedLevel(level) {
  if (!(typeof level === "number" && level > SMALLEST_LEVEL && level < LARGEST_LEVEL)) {
    throw new RangeError("the level is not allowed; give the one that came with the decision");
  }
  return level;
}

// Rewards, on their grid

function ontoUnitGrid(value, [low, high]) {
  const unit = Math.min(Math.max((value - low) * (1 / (high - low)), 0), 1);
  const large = 2 ** (52 - GRID_BITS); // numbers of this size lie one step apart
  return unit + large - large;
}

/** The reward on its grid, or 0 if it is beyond the level. */
function truncated(reward, level) {
  const value = Math.min(Math.max(reward, -LARGEST_REWARD), LARGEST_REWARD);
  if (Math.abs(value) > level) return 0;
  const step = gridStep(level);
  const limit = Math.floor(level / step) * step;
  const nearest = Math.floor(value / step + 0.5) * step;
  return Math.min(Math.max(nearest, -limit), limit);
}

/** A power of two, between 2^-21 and 2^-20 of the width. */
function gridStep(width) {
  return powerOfTwo(exponentOf(width) - GRID_BITS);
}

// Mechanisms

/** Value plus discrete Laplace noise, on a grid: any two values are at most `width` apart. */
function laplaceReport(value, width, epsilon) {
  const step = gridStep(width);
  const position = BigInt(Math.floor(value / step + 0.5)); // exact: values lie on this grid or half
  const steps = BigInt(Math.ceil(width / step)) + 1n; // one to spare, as secure.py proves
  const answer = position + discreteLaplace(steps, epsilon);
  const least = -LARGEST_STEPS;
  const most = LARGEST_STEPS - 1n;
  return Number(answer < least ? least : answer > most ? most : answer) * step;
}

/** A coin of probability x, told truthfully e^epsilon times as often as not. */
function bitReport(x, epsilon) {
  const scale = 2 ** GRID_BITS;
  const coin = bernoulli(BigInt(x * scale), BigInt(scale));
  return coin === truthful(epsilon) ? 1 : 0;
}

/** True with probability 1 / (1 + e^-epsilon): of two even branches one is kept that often. */
function truthful(epsilon) {
  const [numerator, denominator] = ratioOf(epsilon);
  for (;;) {
    if (bernoulli(1n, 2n)) return true;
    if (bernoulliExp(numerator, denominator)) return false;
  }
}

/** An integer k with probability proportional to exp(-epsilon |k| / steps), exactly.
 *  Canonne, Kamath, Steinke 2020, Algorithm 2. */
function discreteLaplace(steps, epsilon) {
  const [numerator, denominator] = ratioOf(epsilon);
  const t = steps * denominator;
  for (;;) {
    const remainder = below(t);
    if (!bernoulliExp(remainder, t)) continue;
    let whole = 0n;
    while (bernoulliExp(1n, 1n)) whole += 1n;
    const size = (remainder + t * whole) / numerator;
    const negative = bernoulli(1n, 2n);
    if (negative && size === 0n) continue; // 0 once, not twice
    return negative ? -size : size;
  }
}

/** True with probability exp(-numerator / denominator), exactly (Algorithm 1 there). */
function bernoulliExp(numerator, denominator) {
  while (numerator > denominator) {
    if (!bernoulliExp(1n, 1n)) return false;
    numerator -= denominator;
  }
  let k = 1n;
  while (bernoulli(numerator, k * denominator)) k += 1n;
  return k % 2n === 1n;
}

/** True with probability numerator / denominator, exactly. */
function bernoulli(numerator, denominator) {
  return below(denominator) < numerator;
}

/** A whole number from 0 to limit - 1, each as likely; nothing is kept between calls. */
function below(limit) {
  const bits = (limit - 1n).toString(2).length;
  const bytes = new Uint8Array(Math.ceil(bits / 8));
  for (;;) {
    crypto.getRandomValues(bytes);
    let number = 0n;
    for (const byte of bytes) number = (number << 8n) | BigInt(byte);
    number >>= BigInt(8 * bytes.length - bits);
    if (number < limit) return number;
  }
}

// Floating point, taken apart

function exponentOf(number) {
  return Number((bitsOf(number) >> 52n) & 0x7ffn) - 1023; // of normal numbers, which all are here
}

/** A positive number as a ratio of whole numbers, in lowest terms. */
function ratioOf(number) {
  let whole = (bitsOf(number) & (2n ** 52n - 1n)) | (2n ** 52n);
  let exponent = exponentOf(number) - 52;
  for (; exponent < 0 && whole % 2n === 0n; exponent += 1) whole /= 2n;
  return exponent < 0 ? [whole, 2n ** BigInt(-exponent)] : [whole * 2n ** BigInt(exponent), 1n];
}

function powerOfTwo(exponent) {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, BigInt(exponent + 1023) << 52n);
  return view.getFloat64(0);
}

function bitsOf(number) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, number);
  return view.getBigUint64(0);
}

/**
 * Reports of a browser to a local policy: only a private report leaves the device, never the
 * reward. An ES module without dependencies.
 *
 *     import { reportOnce } from "./report.js";
 *     // rule: "report" of GET /v1/experiments/{name}; decision: as the service answered it
 *     const promised = { epsilon: 1, range: [0, 1] };
 *     const report = await reportOnce(decision, rule, reward, { promised });
 *     // send {"report": report} to your server, which sends it to /v1/decisions/{id}/reward
 *
 * The noise is exact: BigInt and crypto.getRandomValues, without floating point. It has the law of
 * `policy.report` in Python (balaclava/privacy/exact_noise.py has the proof; mechanisms/laplace.py
 * and randomized_response.py the two mechanisms). A rule is as private as its epsilon says, for any
 * level and range: a reward outside the range is clipped. Whether a report is made never depends on
 * the reward, because silence would reveal it. Write the epsilon and the range that you promised the
 * participant into the page as `promised`: any other rule is refused, before the reward is read.
 *
 * A second report of the same reward costs epsilon again. So `reportOnce` stores each report in
 * IndexedDB, in one transaction for all tabs, and repeats it. A browser that loses its storage, as
 * after private browsing, makes a second report; the service keeps the first.
 */

// Limits of `policy.report` in Python: rewards are rounded to 2^-20 of their range.
const GRID_BITS = 20;
const LARGEST_REWARD = 1e150;
const SMALLEST_LEVEL = 1e-250;
const LARGEST_LEVEL = 1e250;
const SMALLEST_EPSILON = 1e-100;
const LARGEST_EPSILON = 1e100;
const LARGEST_STEPS = 2n ** 63n;

/** Make a new private report of one reward; `promised` as in `reportOnce`. */
export function report(rule, reward, level = null, promised = null) {
  const epsilon = checkedEpsilon(rule, promised);
  const bound = rule.kind === "truncated-laplace" ? checkedLevel(level) : null;
  const value = checkedReward(reward); // last: no check above depends on the reward
  if (bound !== null) return laplaceReport(truncated(value, bound), 2 * bound, epsilon);
  const x = ontoUnitGrid(value, rule.range);
  return rule.kind === "bit" ? bitReport(x, epsilon) : laplaceReport(x, 1, epsilon);
}

/**
 * Report a decision's reward: the same report in every tab and after every reload.
 *
 * @param {{decision_id: string, level?: number}} decision as the service answered it
 * @param {object} rule "report" of the experiment
 * @param {number|boolean} reward never leaves the device
 * @param {{promised: {epsilon: number, range: number[]|null}}} options promised: the largest
 *   epsilon and the range of rewards that the participant agreed to; range null for rewards of any
 *   size. Required.
 */
export async function reportOnce(decision, rule, reward, { promised = null } = {}) {
  const id = decision?.decision_id;
  if (typeof id !== "string" || id === "") {
    throw new TypeError("the decision has no decision_id; pass the service's answer unchanged");
  }
  return stored(id, report(rule, reward, decision.level ?? null, promised));
}

// Storage of reports

/** The stored report of a decision; without one, stores and returns `made`. */
async function stored(id, made) {
  const storage = await openStorage();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = storage.transaction("reports", "readwrite", { durability: "strict" });
      const reports = transaction.objectStore("reports");
      let answer = made;
      const earlier = reports.get(id);
      earlier.onsuccess = () => {
        if (earlier.result === undefined) reports.add(made, id);
        else answer = earlier.result;
      };
      transaction.oncomplete = () => resolve(answer); // a report leaves after it is stored
      transaction.onabort = () => reject(storageError(transaction.error));
    });
  } finally {
    storage.close();
  }
}

function openStorage() {
  return new Promise((resolve, reject) => {
    let request;
    try {
      request = indexedDB.open("balaclava", 1);
    } catch (error) {
      reject(storageError(error)); // storage is blocked
      return;
    }
    request.onupgradeneeded = () => request.result.createObjectStore("reports");
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(storageError(request.error));
  });
}

function storageError(cause) {
  return new Error(
    "this browser cannot store reports, so a reload would cost epsilon again; do not report, or " +
      "call report() and accept that",
    { cause },
  );
}

// Checks; no message repeats a reward

function checkedEpsilon(rule, promised) {
  const kinds = ["bit", "laplace", "truncated-laplace"];
  if (!kinds.includes(rule?.kind) || rule.grid_bits !== GRID_BITS) {
    throw new TypeError("unknown rule; use the report.js of this service");
  }
  const { epsilon } = rule;
  if (!(typeof epsilon === "number" && epsilon >= SMALLEST_EPSILON && epsilon <= LARGEST_EPSILON)) {
    throw new RangeError("the rule's epsilon must be a number above 0");
  }
  if (typeof promised?.epsilon !== "number" || promised.range === undefined) {
    throw new TypeError(
      "`promised` is missing; give { epsilon, range } as the participant was told, with range null " +
        "for rewards of any size",
    );
  }
  if (!(epsilon <= promised.epsilon)) {
    throw new RangeError(
      `the rule has epsilon ${epsilon}, more than the promised ${promised.epsilon}; nothing was ` +
        "reported",
    );
  }
  const range = rule.kind === "truncated-laplace" ? null : checkedRange(rule);
  if (JSON.stringify(range) !== JSON.stringify(promised.range)) {
    throw new RangeError("the rule has another range than the promised one; nothing was reported");
  }
  return epsilon;
}

function checkedReward(reward) {
  const value = typeof reward === "boolean" ? Number(reward) : reward;
  if (typeof value !== "number" || !Number.isFinite(value)) {
    throw new TypeError("the reward must be a finite number");
  }
  return value;
}

function checkedRange(rule) {
  const [low, high] = Array.isArray(rule.range) ? rule.range : [];
  const numbers = typeof low === "number" && typeof high === "number" && low < high;
  // A width whose inverse overflows would fail for some rewards only, which would reveal them.
  if (!numbers || !Number.isFinite(high - low) || !Number.isFinite(1 / (high - low))) {
    throw new RangeError("the rule's range must be [smallest, largest]");
  }
  return [low, high];
}

function checkedLevel(level) {
  if (!(typeof level === "number" && level > SMALLEST_LEVEL && level < LARGEST_LEVEL)) {
    throw new RangeError("the level is not valid; pass the level of the decision");
  }
  return level;
}

// Rewards on their grid

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
  const steps = BigInt(Math.ceil(width / step)) + 1n; // one to spare: see exact_noise.py
  const answer = position + discreteLaplace(steps, epsilon);
  const least = -LARGEST_STEPS;
  const most = LARGEST_STEPS - 1n;
  return Number(answer < least ? least : answer > most ? most : answer) * step;
}

/** A coin of probability x, reported truthfully e^epsilon times as often as not. */
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

/** A uniform integer from 0 to limit - 1; nothing is kept between calls. */
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

// Floating-point numbers as integers

function exponentOf(number) {
  return Number((bitsOf(number) >> 52n) & 0x7ffn) - 1023; // all numbers here are normal
}

/** A positive number as a ratio of integers in lowest terms. */
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

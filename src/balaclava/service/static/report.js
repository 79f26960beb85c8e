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
 *
 * With two aggregators (docs/split.md) a device sends shares instead, one pair for each decision:
 *
 *     import { noteReward, shareLater } from "./report.js";
 *     const servers = ["https://one.example.org", "https://two.example.org"];
 *     const promised = { epsilon: 1, range: [0, 1], servers };
 *     await shareLater(decision, rule, { promised }); // at once, for every decision that learns
 *     await noteReward(decision, 1); // if a reward comes; otherwise the default counts
 *
 * The pair leaves at a fixed time after the decision, whether or not a reward came: `send_after`
 * seconds, or when a page calls `sendShares` after that. Its size does not depend on the reward.
 * The page pins the two servers: a decider that named two of its own would see every reward.
 */

// Limits of `policy.report` in Python: rewards are rounded to 2^-20 of their range.
const GRID_BITS = 20;
const LARGEST_REWARD = 1e150;
const SMALLEST_LEVEL = 1e-250;
const LARGEST_LEVEL = 1e250;
const SMALLEST_EPSILON = 1e-100;
const LARGEST_EPSILON = 1e100;
const LARGEST_STEPS = 2n ** 63n;
const REPORT_KINDS = ["bit", "laplace", "truncated-laplace"];
const MOST_SHARE_BITS = 128;
const BITS_PER_DIGIT = 4; // shares are hexadecimal
const RETRY_MS = 5_000;
const GIVE_UP_MS = 7 * 86_400_000; // an aggregator that was down this long has fixed the batch
const LONGEST_TIMER_MS = 2 ** 31 - 1; // of setTimeout; a page that opens sends what is later

/** Make a new private report of one reward; `promised` as in `reportOnce`. */
export function report(rule, reward, level = null, promised = null) {
  const epsilon = checkedEpsilon(rule, promised, REPORT_KINDS);
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

// Shares for two aggregators

let sending = Promise.resolve(); // the last call of sendShares in this tab

/** Two shares of a reward, clipped to the range, as text: each alone is a uniform number. */
export function shares(rule, reward, promised = null) {
  checkShareRule(rule, promised);
  const unit = ontoUnitGrid(checkedReward(reward), rule.range);
  const modulus = 1n << BigInt(rule.modulus_bits);
  const one = below(modulus);
  const other = (BigInt(unit * 2 ** GRID_BITS) - one + modulus) % modulus;
  const digits = Math.ceil(rule.modulus_bits / BITS_PER_DIGIT);
  return [one, other].map(share => share.toString(16).padStart(digits, "0"));
}

/**
 * Let a pair of shares leave for a decision, at its time. Call it for every decision that learns.
 *
 * @param {{decision_id: string, ticket: string}} decision as the service answered it
 * @param {object} rule "report" of the experiment
 * @param {{promised: {epsilon: number, range: number[], servers: string[]}}} options the largest
 *   epsilon, the range, and the two aggregators that the participant agreed to. Required.
 */
export async function shareLater(decision, rule, { promised = null } = {}) {
  checkShareRule(rule, promised);
  const { decision_id: id, ticket } = decision ?? {};
  if (typeof id !== "string" || id === "" || typeof ticket !== "string") {
    throw new TypeError("the decision has no ticket; pass a decision that learns, unchanged");
  }
  const due = Date.now() + 1000 * rule.send_after;
  const made = { rule, promised, ticket, due, reward: rule.default, pair: null, left: [0, 1] };
  const { due: moment } = await changeShare(id, known => known ?? made);
  setTimeout(sendShares, Math.min(Math.max(moment - Date.now(), 0), LONGEST_TIMER_MS));
}

/** Let this reward count, if the decision's shares have not left. The last one counts. */
export async function noteReward(decision, reward) {
  const value = checkedReward(reward);
  await changeShare(decision?.decision_id, known => {
    if (known === undefined) throw new TypeError("call shareLater first, for every decision");
    return known.pair === null && Date.now() < known.due ? { ...known, reward: value } : known;
  });
}

/** Send the shares that are due. Call it when a page opens: the page of the decision may be gone. */
export function sendShares() {
  return (sending = sending.then(sendDue, sendDue)); // one after the other: each pair leaves once
}

async function sendDue() {
  let waits = false;
  for (const id of await unsentIds()) {
    const { due, left, pair, rule, ticket } = await changeShare(id, withPair);
    if (pair === null) continue;
    const { epsilon, modulus_bits } = rule; // an honest aggregator with other terms refuses
    const over = Date.now() > due + GIVE_UP_MS;
    const done = [];
    for (const side of left) {
      const address = `${rule.addresses[side]}/${encodeURIComponent(id)}`;
      const content = { share: pair[side], ticket, epsilon, modulus_bits };
      if (over || (await delivered(address, content))) done.push(side);
    }
    const known = await changeShare(id, known => withoutSides(known, done));
    waits ||= known.left.length > 0;
  }
  if (waits) setTimeout(sendShares, RETRY_MS);
}

/** A record with its pair, once it is due: made once, in the transaction that deletes the reward. */
function withPair(known) {
  if (known.pair !== null || Date.now() < known.due) return known;
  return { ...known, pair: shares(known.rule, known.reward, known.promised), reward: null };
}

/** A record without the sides that need no share any more: both shares together are the reward. */
function withoutSides(known, done) {
  const left = known.left.filter(side => !done.includes(side)); // another tab may have sent, too
  return { ...known, left, pair: left.length > 0 ? known.pair : [] };
}

/** Whether an aggregator took a share, or will never take it. */
async function delivered(address, content) {
  try {
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify(content);
    const answer = await fetch(address, { method: "PUT", body, headers, keepalive: true });
    return answer.status < 500 && answer.status !== 404; // 404: it was not given the task yet
  } catch {
    return false;
  }
}

/** Replace a decision's record by what `change` makes of it, in one transaction for all tabs. */
function changeShare(id, change) {
  return inStore("shares", (store, answer) => {
    const earlier = store.get(id);
    earlier.onsuccess = () => {
      try {
        const made = change(earlier.result);
        if (made !== earlier.result) store.put(made, id);
        answer(made);
      } catch (error) {
        answer(Promise.reject(error));
        store.transaction.abort();
      }
    };
  });
}

/** Ids of decisions whose shares have not both left. */
function unsentIds() {
  return inStore("shares", (store, answer) => {
    const ids = store.getAllKeys();
    const all = store.getAll(); // in the order of ids
    all.onsuccess = () => answer(ids.result.filter((_, n) => all.result[n].left.length > 0));
  });
}

function checkShareRule(rule, promised) {
  checkedEpsilon(rule, promised, ["shares"]);
  const { addresses, modulus_bits: bits, send_after: wait } = rule;
  // A default that cannot be shared would fail where no reward came: silence would reveal that.
  checkedReward(rule.default);
  if (!(Number.isInteger(bits) && bits > GRID_BITS + 1 && bits <= MOST_SHARE_BITS && wait > 0)) {
    throw new RangeError("the rule is not valid; pass `report` of the experiment, unchanged");
  }
  const { servers } = promised;
  if (!Array.isArray(servers) || servers.length !== 2 || addresses?.length !== 2) {
    throw new TypeError("`promised.servers` must be the URLs of the two aggregators");
  }
  const [one, other] = servers.map(server => new URL(server).origin);
  const origins = addresses.map(address => new URL(address).origin);
  if (one === other || origins[0] !== one || origins[1] !== other) {
    throw new RangeError("the rule has other servers than the promised ones; nothing was sent");
  }
}

// Storage of reports and shares

/** The stored report of a decision; without one, stores and returns `made`. */
function stored(id, made) {
  return inStore("reports", (reports, answer) => {
    const earlier = reports.get(id);
    earlier.onsuccess = () => {
      if (earlier.result === undefined) reports.add(made, id);
      answer(earlier.result ?? made);
    };
  });
}

/** What `work(store, answer)` answers, once its transaction is on the disk: then it may leave. */
async function inStore(name, work) {
  const storage = await openStorage();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = storage.transaction(name, "readwrite", { durability: "strict" });
      let result;
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () =>
        result instanceof Promise ? resolve(result) : reject(storageError(transaction.error));
      work(transaction.objectStore(name), answer => (result = answer));
    });
  } finally {
    storage.close();
  }
}

function openStorage() {
  return new Promise((resolve, reject) => {
    let request;
    try {
      request = indexedDB.open("balaclava", 2);
    } catch (error) {
      reject(storageError(error)); // storage is blocked
      return;
    }
    request.onupgradeneeded = () => {
      for (const name of ["reports", "shares"]) {
        if (!request.result.objectStoreNames.contains(name)) request.result.createObjectStore(name);
      }
    };
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

function checkedEpsilon(rule, promised, kinds) {
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

/** A client of the balaclava service: private decisions over HTTP. */

import {
  ParameterError,
  ServiceConflictError,
  ServiceError,
  ServiceKeyError,
  ServiceLookupError,
  ServiceRequestError,
  ServiceUnavailableError,
  WindowOverError,
} from "./errors.js";
import type {
  ApiKey,
  ArmChanges,
  CloneChanges,
  Decision,
  DecisionState,
  Erased,
  Experiment,
  ExperimentChanges,
  ExperimentDefinition,
  History,
  Ledger,
  Plan,
  Population,
  Privacy,
  Results,
  RewardReceipt,
  Role,
  StoppingQuery,
  Version,
  Webhook,
  WebhookEvent,
} from "./documents.js";

export * from "./errors.js";
export type * from "./documents.js";

/** Options of a client; times are in seconds. */
export interface ClientOptions {
  /** An API key; without one, the service must run with --no-keys. */
  key?: string;
  /** For how long transient errors are retried. */
  patience?: number;
  /** The same for decisions, for which a visitor waits. */
  deadline?: number;
  /** Timeout of one attempt. */
  timeout?: number;
  /** Used in place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** Options of `decide`. */
export interface DecideOptions {
  /** The participant. The service stores a keyed digest, and limits how many decisions learn. */
  person?: string;
  /** Idempotency key: the same id gets the same decisions. Generated if it is not given. */
  requestId?: string;
  /** The person keeps the arm of the first sticky decision, which alone may learn: send the
   * reward to the answer's first_decision_id. */
  sticky?: boolean;
  /** Labels of the arms that the person can get; must not depend on unreleased rewards. */
  available?: string[];
  /** Of a contextual policy: numbers by name, a row, or a row for each arm. Public. */
  features?: Record<string, number | number[]> | number[] | number[][];
  /** Public attributes of the person, for targeting. They are not stored. */
  attributes?: Record<string, string | number | boolean>;
  /** Label of the arm to use if the service is unavailable. Such a decision learns nothing. */
  default?: string;
}

interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  body?: unknown;
  query?: Record<string, string | number | boolean | undefined>;
  seconds?: number; // for all attempts together
  once?: boolean; // not safe to send again
  file?: boolean; // the answer is a file, not JSON
}

// Seconds, as in the Python client. The first wait is longer than a commit; the longest spreads
// the load of a restart.
const FIRST_WAIT = 0.1;
const LONGEST_WAIT = 5;
const LEAST_TIMEOUT = 0.05;
const MOST_REWARDS = 5_000; // per request: the service takes 10,000, and 1 MB
const TRANSIENT = [502, 503, 504];

/** Calls the service, and retries transient errors under the same `request_id`. */
export class Client {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #patience: number;
  readonly #deadline: number;
  readonly #timeout: number;
  readonly #fetch: typeof fetch;

  constructor(url: string, options: ClientOptions = {}) {
    if (!/^https?:\/\/[^/]/.test(url)) {
      throw new ParameterError("the URL must begin with http:// or https://");
    }
    this.#url = url.replace(/\/+$/, "");
    this.#headers = options.key === undefined ? {} : { authorization: `Bearer ${options.key}` };
    this.#patience = checkedSeconds("patience", options.patience ?? 30);
    this.#deadline = checkedSeconds("deadline", options.deadline ?? 3);
    this.#timeout = checkedSeconds("timeout", options.timeout ?? 10);
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  /** Ask for one decision. */
  async decide(experiment: string, options: DecideOptions = {}): Promise<Decision> {
    const [decision] = await this.decideMany(experiment, 1, options);
    return decision as Decision;
  }

  /** Ask for exactly `count` decisions. */
  async decideMany(
    experiment: string,
    count: number,
    options: DecideOptions = {},
  ): Promise<Decision[]> {
    const body = {
      request_id: options.requestId ?? randomId(),
      count,
      ...(options.person === undefined ? {} : { person: options.person }),
      ...(options.sticky ? { sticky: true } : {}),
      ...(options.available === undefined ? {} : { available: options.available }),
      ...(options.features === undefined ? {} : { features: options.features }),
      ...(options.attributes === undefined ? {} : { attributes: options.attributes }),
    };
    const path = pathOf("experiments", experiment, "decisions");
    try {
      const answer = await this.#send({ method: "POST", path, body, seconds: this.#deadline });
      const { decisions } = answer as { decisions: Decision[] };
      if (decisions.length !== count) {
        throw new ServiceError(`asked for ${count} decisions, but received ${decisions.length}`);
      }
      return decisions;
    } catch (error) {
      if (!(error instanceof ServiceUnavailableError) || options.default === undefined) throw error;
      const label = options.default;
      return Array.from({ length: count }, () => defaultDecision(label));
    }
  }

  /** Record the reward of a decision. It counts once. That of a default is ignored. */
  async reward(decision: Decision | string, value: number): Promise<void> {
    await this.#sendReward(decision, "value", value);
  }

  /** Record a device's private report, for a local policy. */
  async report(decision: Decision | string, report: number): Promise<void> {
    await this.#sendReward(decision, "report", report);
  }

  /** Record readings of guardrails, by metric. Each counts once. */
  async metrics(decision: Decision | string, readings: Record<string, number>): Promise<void> {
    for (const [name, value] of Object.entries(readings)) checkedNumber(name, value);
    await this.#tell(decision, { metrics: readings });
  }

  /** Say that a decision was displayed, for the check of the sample ratio. */
  async exposed(decision: Decision | string): Promise<void> {
    await this.#tell(decision, { exposed: true });
  }

  /** Record many rewards, each with an answer of its own, in the same order. */
  async rewards(pairs: Iterable<readonly [Decision | string, number]>): Promise<RewardReceipt[]> {
    return this.#sendRewards(pairs, "value");
  }

  /** Record many reports, each with an answer of its own, in the same order. */
  async reports(pairs: Iterable<readonly [Decision | string, number]>): Promise<RewardReceipt[]> {
    return this.#sendRewards(pairs, "report");
  }

  /** Create an experiment. Creating the same one again changes nothing. */
  async createExperiment(definition: ExperimentDefinition): Promise<Experiment> {
    const path = pathOf("experiments");
    return (await this.#send({ method: "POST", path, body: definition })) as Experiment;
  }

  /** List the experiments: with archived ones, or those with a text in name, owner or purpose. */
  async experiments(
    query: { archived?: boolean; search?: string } = {},
  ): Promise<Experiment[]> {
    const answer = (await this.#get(query, "experiments")) as { experiments: Experiment[] };
    return answer.experiments;
  }

  /** Definition, progress and guarantee of an experiment. */
  async experiment(name: string): Promise<Experiment> {
    return (await this.#get({}, "experiments", name)) as Experiment;
  }

  /** Released means with intervals, the winner if there is one, and whether to stop. */
  async results(name: string, query: StoppingQuery = {}): Promise<Results> {
    return (await this.#get(query, "experiments", name, "results")) as Results;
  }

  /** How many decisions it takes to name the best arm. */
  async plan(name: string, query: StoppingQuery = {}): Promise<Plan> {
    return (await this.#get(query, "experiments", name, "plan")) as Plan;
  }

  /** The guarantee, whom it protects, and what it does not cover. */
  async privacy(name: string): Promise<Privacy> {
    return (await this.#get({}, "experiments", name, "privacy")) as Privacy;
  }

  /** Shares of decisions and released means over time, at up to `points` moments. */
  async history(name: string, points = 300): Promise<History> {
    return (await this.#get({ points }, "experiments", name, "history")) as History;
  }

  /** Change owner, purpose, retention, archived or guardrail limits. Admin only. */
  async edit(name: string, changes: ExperimentChanges): Promise<Experiment> {
    return this.#patch(name, { ...changes });
  }

  /** Add arms, retire arms, and set least shares: all of it or nothing. Admin only. */
  async changeArms(name: string, changes: ArmChanges): Promise<Experiment> {
    return this.#patch(name, {
      ...(changes.add?.length ? { add_arms: changes.add } : {}),
      ...(changes.retire?.length ? { retire_arms: changes.retire } : {}),
      ...(changes.shares === undefined ? {} : { shares: changes.shares }),
    });
  }

  /** Create an experiment like another one, with its live arms. Nothing learned is copied. */
  async clone(experiment: string, name: string, changes: CloneChanges = {}): Promise<Experiment> {
    return this.#change(experiment, "clone", { name, ...changes });
  }

  /** Definition, guarantee, releases and decisions as a file, never a reward. Admin only. */
  async export(
    name: string,
    query: { format?: "jsonl" | "parquet"; since?: number; until?: number } = {},
  ): Promise<Uint8Array> {
    const path = pathOf("experiments", name, "export");
    return (await this.#send({ method: "GET", path, query, file: true })) as Uint8Array;
  }

  /** Erase a person's data in all experiments. Admin only. It cannot be undone. */
  async erase(person: string): Promise<Erased> {
    const path = pathOf("persons");
    return (await this.#send({ method: "DELETE", path, body: { person } })) as Erased;
  }

  /** The state of a decision, without its reward. Admin only. */
  async decision(decision: Decision | string): Promise<DecisionState> {
    return (await this.#get({}, "decisions", idOf(decision))) as DecisionState;
  }

  /** Versions of the service and of its database. */
  async version(): Promise<Version> {
    return (await this.#get({}, "version")) as Version;
  }

  /** Privacy budgets: total, spent, left. */
  async populations(): Promise<Population[]> {
    const answer = (await this.#get({}, "populations")) as { populations: Population[] };
    return answer.populations;
  }

  /** Create a population with a total budget, or raise its total. */
  async setPopulation(name: string, epsilon: number, delta = 0): Promise<Population> {
    const path = pathOf("populations", name);
    return (await this.#send({ method: "PUT", path, body: { epsilon, delta } })) as Population;
  }

  /** Charge a population for a release made elsewhere, before it is made. Admin only. */
  async chargeRelease(
    population: string,
    release: string,
    epsilon: number,
    delta = 0,
  ): Promise<Population> {
    const body = { request_id: randomId(), release, epsilon, delta };
    const path = pathOf("populations", population, "charges");
    return (await this.#send({ method: "POST", path, body })) as Population;
  }

  /** All budgets and all ledger entries. Admin only. */
  async ledger(): Promise<Ledger> {
    return (await this.#get({}, "ledger")) as Ledger;
  }

  /** All API keys, without the keys themselves. Admin only. */
  async keys(): Promise<ApiKey[]> {
    return ((await this.#get({}, "keys")) as { keys: ApiKey[] }).keys;
  }

  /** Create an API key. Admin only, and never retried: that could create two. */
  async createKey(
    role: Role,
    label = "",
    options: { lifetime?: number; experiments?: string[] } = {},
  ): Promise<ApiKey & { key: string }> {
    const body = { role, label, ...options };
    const call: Call = { method: "POST", path: pathOf("keys"), body, once: true };
    return (await this.#send(call)) as ApiKey & { key: string };
  }

  /** Revoke an API key by its id. Admin only. */
  async revokeKey(id: string): Promise<void> {
    await this.#send({ method: "DELETE", path: pathOf("keys", id) });
  }

  /** All webhooks, without their secrets. Admin only. */
  async webhooks(): Promise<Webhook[]> {
    return ((await this.#get({}, "webhooks")) as { webhooks: Webhook[] }).webhooks;
  }

  /** Create or change a webhook; `secret` signs deliveries. Admin only. */
  async setWebhook(
    name: string,
    url: string,
    events: WebhookEvent[],
    secret: string,
  ): Promise<Webhook> {
    const body = { url, events, secret };
    return (await this.#send({ method: "PUT", path: pathOf("webhooks", name), body })) as Webhook;
  }

  /** Delete a webhook, and what it still had to deliver. Admin only. */
  async deleteWebhook(name: string): Promise<void> {
    await this.#send({ method: "DELETE", path: pathOf("webhooks", name) });
  }

  /** Pause an experiment: decisions are refused until it is resumed. */
  async pause(name: string): Promise<Experiment> {
    return this.#change(name, "pause");
  }

  /** Resume a paused experiment. */
  async resume(name: string): Promise<Experiment> {
    return this.#change(name, "resume");
  }

  /** Finish an experiment: the winner or `arm` is served, learning stops. It cannot be undone. */
  async finish(name: string, arm?: string): Promise<Experiment> {
    return this.#change(name, "finish", arm === undefined ? undefined : { arm });
  }

  async #change(name: string, verb: string, body?: object): Promise<Experiment> {
    const path = pathOf("experiments", name, verb);
    const call: Call = { method: "POST", path };
    return (await this.#send(body === undefined ? call : { ...call, body })) as Experiment;
  }

  async #patch(name: string, body: object): Promise<Experiment> {
    const path = pathOf("experiments", name);
    return (await this.#send({ method: "PATCH", path, body })) as Experiment;
  }

  async #get(query: NonNullable<Call["query"]>, ...parts: string[]): Promise<unknown> {
    return this.#send({ method: "GET", path: pathOf(...parts), query });
  }

  async #sendReward(decision: Decision | string, kind: string, value: number): Promise<void> {
    if (isDefault(decision)) return;
    await this.#tell(decision, { [kind]: checkedNumber(kind, value) });
  }

  async #tell(decision: Decision | string, body: object): Promise<void> {
    if (isDefault(decision)) return;
    const path = pathOf("decisions", idOf(decision), "reward");
    await this.#send({ method: "PUT", path, body });
  }

  async #sendRewards(
    pairs: Iterable<readonly [Decision | string, number]>,
    kind: string,
  ): Promise<RewardReceipt[]> {
    const kept = [...pairs].filter(([decision]) => !isDefault(decision));
    const body = kept.map(([decision, value]) => ({
      decision_id: idOf(decision),
      [kind]: checkedNumber(kind, value),
    }));
    const receipts: RewardReceipt[] = [];
    for (let start = 0; start < body.length; start += MOST_REWARDS) {
      const part = body.slice(start, start + MOST_REWARDS);
      const answer = await this.#send({ method: "POST", path: pathOf("rewards"), body: part });
      receipts.push(...(answer as RewardReceipt[]));
    }
    return receipts;
  }

  /** Send a request until it is answered, or its time is over. */
  async #send(call: Call): Promise<unknown> {
    const end = now() + Math.min(this.#patience, call.seconds ?? Infinity);
    for (let attempt = 0; ; attempt++) {
      let fault: string;
      let status = 0;
      let retryAfter = 0;
      // Half of what is left: a connection that is silently lost must leave time for another.
      const left = call.seconds === undefined ? Infinity : (end - now()) / 2;
      try {
        const answer = await this.#attempt(call, Math.max(left, LEAST_TIMEOUT));
        if (!TRANSIENT.includes(answer.status) || call.once) {
          return call.file ? answer.file : answer.document;
        }
        status = answer.status;
        retryAfter = secondsUntil(answer.response.headers.get("retry-after"));
        fault = answer.detail || `HTTP ${status}`;
      } catch (error) {
        if (error instanceof ServiceError) throw error;
        if (call.once) throw broken(call);
        fault = error instanceof Error ? error.message : "the connection broke";
      }
      const longest = Math.min(FIRST_WAIT * 2 ** attempt, LONGEST_WAIT);
      const wait = retryAfter + longest * (0.5 + 0.5 * Math.random());
      if (now() + wait > end) throw unavailable(fault, attempt + 1, call, status);
      await new Promise((resolve) => setTimeout(resolve, wait * 1_000));
    }
  }

  async #attempt(call: Call, left: number): Promise<Answer> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(call.query ?? {})) {
      if (value !== undefined) query.set(name, String(value));
    }
    const search = query.size ? `?${query}` : "";
    const seconds = Math.min(this.#timeout, left);
    const json = call.body === undefined ? {} : { "content-type": "application/json" };
    // Not AbortSignal.timeout: its timer does not keep a script alive, whose request may be lost.
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(new Error("timeout")), Math.ceil(seconds * 1_000));
    try {
      const response = await this.#fetch(`${this.#url}${call.path}${search}`, {
        method: call.method,
        headers: { ...this.#headers, ...json },
        signal: stop.signal,
        redirect: "error",
        ...(call.body === undefined ? {} : { body: JSON.stringify(call.body) }),
      });
      return new Answer(response, new Uint8Array(await response.arrayBuffer()));
    } finally {
      clearTimeout(timer);
    }
  }
}

/** A response, read whole. */
class Answer {
  readonly status: number;

  constructor(
    readonly response: Response,
    readonly content: Uint8Array,
  ) {
    this.status = response.status;
  }

  get text(): string {
    return new TextDecoder().decode(this.content);
  }

  /** The content of a file. Throws if it is an error. */
  get file(): Uint8Array {
    return this.response.ok ? this.content : (this.document as never);
  }

  /** The detail of a problem document; empty for any other response. */
  get detail(): string {
    try {
      const { detail } = JSON.parse(this.text) as { detail?: unknown };
      return typeof detail === "string" ? detail : "";
    } catch {
      return "";
    }
  }

  /** The JSON. Throws if it is an error, or not from a balaclava service. */
  get document(): unknown {
    if (!this.response.ok) {
      const detail =
        this.detail || "the answer is not from a balaclava service; check the URL, and any proxy";
      throw errorOf(this.status, `${detail} (HTTP ${this.status})`);
    }
    if (this.status === 204) return undefined;
    try {
      return JSON.parse(this.text);
    } catch {
      throw new ServiceError(
        `the answer from ${this.response.url} is not JSON; check that the URL is that of a ` +
          "balaclava service",
        this.status,
      );
    }
  }
}

function broken(call: Call): ServiceUnavailableError {
  return new ServiceUnavailableError(
    `the connection broke during ${call.method} ${call.path}, which is not safe to repeat; check ` +
      "whether the service did it before you send it again",
  );
}

function unavailable(
  fault: string,
  sent: number,
  call: Call,
  status: number,
): ServiceUnavailableError {
  const id = (call.body as { request_id?: string } | undefined)?.request_id;
  const advice =
    id === undefined
      ? "send the same request again later; it counts once"
      : `retry later with requestId ${JSON.stringify(id)}`;
  const times = sent === 1 ? "1 attempt" : `${sent} attempts`;
  return new ServiceUnavailableError(
    `the service is unavailable after ${times}: ${fault}; ${advice}`,
    status,
  );
}

function errorOf(status: number, message: string): ServiceError {
  switch (status) {
    case 401:
    case 403:
      return new ServiceKeyError(message, status);
    case 404:
      return new ServiceLookupError(message, status);
    case 409:
      return new ServiceConflictError(message, status);
    case 410:
      return new WindowOverError(message, status);
  }
  const caller = status >= 400 && status < 500;
  return caller ? new ServiceRequestError(message, status) : new ServiceError(message, status);
}

function pathOf(...parts: string[]): string {
  return `/v1/${parts.map(encodeURIComponent).join("/")}`;
}

function isDefault(decision: Decision | string): boolean {
  return typeof decision !== "string" && decision.decision_id === "";
}

function idOf(decision: Decision | string): string {
  const id = typeof decision === "string" ? decision : decision.decision_id;
  if (typeof id !== "string" || id === "") {
    throw new ParameterError("give the result of decide, or its decision_id");
  }
  return id;
}

/** A finite number. The message never repeats it: it may be a reward. */
function checkedNumber(kind: string, value: number): number {
  if (typeof value !== "number" || !Number.isFinite(value)) {
    const noun = kind === "value" ? "reward" : "report";
    throw new ParameterError(`the ${noun} must be a finite number`);
  }
  return value;
}

function checkedSeconds(name: string, value: number): number {
  if (!(value >= 0)) throw new ParameterError(`${name} must be a number of seconds, not ${value}`);
  return value;
}

function defaultDecision(label: string): Decision {
  return { decision_id: "", arm: -1, label, propensity: null, learns: false };
}

/** 128 random bits. */
function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Seconds in a Retry-After header, a number or a date. */
function secondsUntil(text: string | null): number {
  if (text === null || text === "") return 0;
  if (/^\d+$/.test(text)) return Number(text);
  const date = Date.parse(text);
  return Number.isNaN(date) ? 0 : Math.max((date - Date.now()) / 1_000, 0);
}

/** Monotonic seconds. */
function now(): number {
  return performance.now() / 1_000;
}

/** Documents of the service, under the names that it gives them. Later versions may add fields. */

/** A decision, or the default in its place. */
export interface Decision {
  /** Empty of a default, whose reward is ignored. */
  decision_id: string;
  arm: number;
  label: string;
  propensity: number | null;
  /** False at the participant's limit, and after the experiment has finished. */
  learns: boolean;
  /** Local policies only: the device needs it to report. */
  level?: number;
  /** Of a sticky answer: the person's first decision for this arm, or for one that was retired. */
  first_decision_id?: string;
  /** Experiments with two aggregators only: the device needs it to share. */
  ticket?: string;
}

/** The state of a decision, without its reward. Times are in seconds since 1970. */
export interface DecisionState {
  decision_id: string;
  experiment: string;
  arm: number;
  state: "open" | "rewarded" | "defaulted" | "given up" | "not learned from" | "erased";
  made: number;
  closes: number;
}

/** The answer to one of many rewards. */
export type RewardReceipt =
  | { decision_id: string; recorded: true }
  | { decision_id: string; recorded?: undefined; status: number; detail: string };

/** A new experiment. */
export interface ExperimentDefinition {
  name: string;
  policy: string;
  parameters?: Record<string, unknown>;
  arms: string[];
  reward_window: number;
  default_reward?: number | null;
  settle?: "window" | "arrival";
  rewards_per_person?: number;
  population?: string | null;
  /** Of the population: a person learns in the experiments of one segment only. */
  segment?: string | null;
  owner?: string;
  purpose?: string;
  /** Seconds until decisions are deleted. */
  retention?: number;
  guardrails?: Guardrail[] | null;
  /** Whether clients report which decisions were displayed. */
  exposures?: boolean;
  targeting?: Targeting | null;
  /** The share of participants who get a fixed arm, and from whom nothing is learned. */
  held_out?: { share: number; arm: string } | null;
  /** Least chances by label. */
  shares?: Record<string, number> | null;
  /** Processes that decide, by leases. */
  deciders?: number;
  /** Results of another experiment, or [mean, rewards] by arm, for a warm start. */
  prior?: Record<string, unknown> | null;
  /** The means are those of the prior: results count it. */
  same_means?: boolean;
  /** URLs of two aggregators, for a policy with "trust": "split". */
  aggregators?: string[] | null;
  /** A person has at most one learning decision in a batch. */
  rewards_apart?: boolean;
}

/** Changes of an experiment. What is left out stays as it is. */
export interface ExperimentChanges {
  owner?: string;
  purpose?: string;
  retention?: number;
  archived?: boolean;
  /** Changed limits by metric; guardrails cannot be added. */
  guardrail_limits?: Record<string, number>;
}

/** Changes of the arms: all of it or nothing. */
export interface ArmChanges {
  /** Labels of new arms. Labels are never reused. */
  add?: string[];
  /** Labels of arms to stop offering; their late rewards still count. */
  retire?: string[];
  /** Least chances by label, at most 1 in all; they replace all shares. */
  shares?: Record<string, number>;
}

/** What differs in a clone. The population is charged for it; by default it has none. */
export interface CloneChanges {
  population?: string;
  parameters?: Record<string, unknown>;
  owner?: string;
  purpose?: string;
}

/** A further metric, whose mean must not cross a limit in any arm. */
export interface Guardrail {
  metric: string;
  /** It adds to that of the policy. */
  epsilon: number;
  range: [number, number];
  limit: number;
  worse?: "above" | "below";
  /** Counts where no reading comes. */
  missing: number;
  /** Label of the arm that gets all decisions once the limit is crossed. */
  serve: string;
}

/** Who takes part: allowed values by attribute, and the arm of all others. */
export interface Targeting {
  attributes: Record<string, (string | number | boolean)[]>;
  otherwise: string;
}

/** A guarantee; epsilon and delta are null without one. */
export interface Guarantee {
  epsilon: number | null;
  delta: number | null;
  model: "none" | "central" | "split" | "local";
  scope: "none" | "decision" | "joint" | "trajectory" | "view" | "report";
  neighbours: string;
  assumptions: string[];
  sentence: string;
}

/** An experiment: its definition, progress and guarantee. */
export interface Experiment extends Required<ExperimentDefinition> {
  retired_arms: string[];
  shares: Record<string, number>;
  archived: boolean;
  state: "running" | "paused" | "finished";
  /** Label of the arm that was chosen when the experiment was finished. */
  served_arm: string | null;
  created: string;
  decisions: number;
  learning_decisions: number;
  guarantee: Guarantee;
  /** What report.js needs, for a local policy. */
  report: Record<string, unknown> | null;
  /** What a contextual policy takes. */
  features: Record<string, unknown> | null;
}

/** When to stop: the query of results and plan. */
export type StoppingQuery = {
  confidence?: number;
  smallest_difference?: number;
  participants?: number;
};

/** An arm with its released mean and interval. */
export interface Arm {
  arm: number;
  label: string;
  decisions: number;
  share: number;
  retired: boolean;
  rewards: number | null;
  mean: number | null;
  low: number | null;
  high: number | null;
}

/** Whether an experiment may stop, and why. */
export interface StopAdvice {
  reason: "winner" | "equivalent" | "futile" | null;
  sentence: string;
}

/** The leader's released mean minus that of another arm, with its interval. */
export interface Difference {
  arm: number;
  label: string;
  difference: number;
  low: number | null;
  high: number | null;
}

/** Released means, and the winner if there is one. */
export interface Results {
  name: string;
  state: string;
  decisions: number;
  confidence: number;
  arms: Arm[];
  winner: string | null;
  leader: string | null;
  differences: Difference[] | null;
  remaining: number | null;
  may_stop: StopAdvice | null;
  note: string | null;
  condition: string | null;
  releases: Record<string, unknown> | null;
  missing: string | null;
  windows: Record<string, unknown> | null;
  drift: Record<string, unknown>;
  guardrails: Record<string, unknown>[];
  breaker: Record<string, unknown> | null;
  sample_ratio: Record<string, unknown> | null;
  values: Record<string, unknown> | null;
  sentence: string;
}

/** Columns of a chart: one value, or one list over the arms, for each moment. */
export interface History {
  decisions: number[];
  at: number[];
  arms: string[];
  shares: number[][];
  means: (number | null)[][];
  low: (number | null)[][];
  high: (number | null)[][];
}

/** Decisions needed to name the best arm. */
export interface Plan {
  name: string;
  policy: string;
  confidence: number;
  learning_decisions: number;
  names_winners: Record<string, unknown>;
  winner: string | null;
  leader: string | null;
  differences: Difference[] | null;
  needed: number | null;
  soonest: number | null;
  may_stop: StopAdvice | null;
  note: string | null;
}

/** The guarantee, whom it protects, and what it does not cover. */
export interface Privacy {
  guarantee: Guarantee;
  per_person: Guarantee | null;
  population: Population | null;
  charged: { epsilon: number; delta: number } | null;
  restored: number;
  not_covered: string[];
  explanation: string;
}

/** A privacy budget. */
export interface Population {
  name: string;
  epsilon: number;
  delta: number;
  spent_epsilon: number;
  spent_delta: number;
  left_epsilon: number;
  left_delta: number;
  overspent: boolean;
  segments: Record<string, number>;
}

/** An entry of the ledger. */
export interface LedgerEntry {
  at: number;
  event: string;
  population: string | null;
  experiment: string | null;
  epsilon: number;
  delta: number;
  note: string;
}

/** All budgets and all entries. */
export interface Ledger {
  populations: Population[];
  entries: LedgerEntry[];
}

/** What was erased of a person, and its limits. */
export interface Erased {
  experiments: string[];
  decisions: number;
  erased: string[];
  kept: string[];
  cannot_be_undone: string[];
}

export type Role = "decide" | "read" | "admin";

/** An API key, without the key itself. */
export interface ApiKey {
  id: string;
  role: Role;
  label: string;
  created: number;
  expires: number | null;
  revoked?: number | null;
  experiments?: string[] | null;
}

export type WebhookEvent = "winner" | "guardrail" | "drift" | "budget";

/** A webhook, without its secret. */
export interface Webhook {
  name: string;
  url: string;
  events: WebhookEvent[];
}

/** Versions of the service and of its database. */
export interface Version {
  version: string;
  schema: string;
  api: string;
}

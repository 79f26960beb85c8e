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
  /** Of a sticky answer: the person's first decision for this arm, while it is stored. */
  first_decision_id?: string;
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
  owner?: string;
  purpose?: string;
  guardrails?: Guardrail[] | null;
  /** Whether clients report which decisions were displayed. */
  exposures?: boolean;
  targeting?: Targeting | null;
  /** The share of participants who get a fixed arm, and from whom nothing is learned. */
  held_out?: { share: number; arm: string } | null;
  /** Least chances by label. */
  shares?: Record<string, number> | null;
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
  model: "none" | "central" | "local";
  scope: "none" | "decision" | "trajectory" | "report";
  neighbours: string;
  assumptions: string[];
  sentence: string;
}

/** An experiment: its definition, progress and guarantee. */
export interface Experiment extends Required<ExperimentDefinition> {
  state: "running" | "paused" | "finished";
  /** Label of the arm that was chosen when the experiment was finished. */
  served_arm: string | null;
  created: string;
  decisions: number;
  learning_decisions: number;
  guarantee: Guarantee;
  /** What report.js needs, for a local policy. */
  report: Record<string, unknown> | null;
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
  missing: string | null;
  sentence: string;
}

/** Decisions needed to name the best arm. */
export interface Plan {
  name: string;
  policy: string;
  confidence: number;
  learning_decisions: number;
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
}

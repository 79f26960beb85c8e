"""The TypeScript client and a stock OpenFeature provider from npm, against the real service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import node
from tests.service.servers import FaultyProxy, in_a_thread

LIFE = """
import { Client, ServiceConflictError, ServiceKeyError, ServiceLookupError } from "./dist/index.js";
import { ParameterError, ServiceRequestError } from "./dist/index.js";
const [url, key] = process.argv.slice(2);
const client = new Client(`${url}/`, { key });
const kind = async (promise) => { try { await promise; return "none"; }
  catch (error) { return error.constructor.name; } };
const definition = { name: "page ä b", policy: "dp-imed", parameters: { epsilon: 1 },
  arms: ["plain", "map"], reward_window: 3600 };
const made = await client.createExperiment(definition);
const first = await client.decide("page ä b", { person: "ann", sticky: true });
const again = await client.decide("page ä b", { person: "ann", sticky: true });
const many = await client.decideMany("page ä b", 500);
await client.reward(first, 1);
await client.reward(first.decision_id, 0);
const receipts = await client.rewards(many.map((each) => [each, each.label === "map" ? 1 : 0]));
const results = await client.results("page ä b", { confidence: 0.9 });
const same = [];
for (let turn = 0; turn < 2; turn++) same.push(await client.decide("page ä b", { requestId: "r" }));
console.log(JSON.stringify({
  state: made.state, first, again, count: new Set(many.map((each) => each.decision_id)).size,
  recorded: receipts.filter((each) => each.recorded).length,
  decisions: results.decisions, confidence: results.confidence, sentence: results.sentence,
  needed: (await client.plan("page ä b")).confidence, same,
  epsilon: (await client.privacy("page ä b")).guarantee.epsilon,
  names: (await client.experiments()).map((each) => each.name),
  budget: (await client.setPopulation("us", 3)).left_epsilon,
  paused: (await client.pause("page ä b")).state,
  errors: [
    await kind(client.decide("page ä b")), await kind(client.decide("no such")),
    await kind(client.reward(first, NaN)), await kind(client.reward(first, "1")),
    await kind(client.reward(first.decision_id, 1e300)),
    await kind(new Client(url).experiments()), await kind(client.reward("", 1)),
  ],
}));
"""
FAULTS = """
import { Client } from "./dist/index.js";
const [url, key] = process.argv.slice(2);
const client = new Client(url, { key, patience: 60, deadline: 60, timeout: 2 });
const made = [];
for (let turn = 0; turn < 3; turn++) made.push(await client.decide("page", { person: "bob" }));
await client.reward(made[0], 1);
const hasty = new Client("http://127.0.0.1:1", { key, deadline: 0.3 });
const began = performance.now();
const [one] = await hasty.decideMany("page", 1, { default: "plain" });
const took = performance.now() - began;
await hasty.reward(one, 1);
let message = "";
try { await hasty.decide("page", { requestId: "mine" }); }
catch (error) { message = error.message; }
console.log(JSON.stringify({ made, one, took, message }));
"""
SAFEGUARDS = """
import { Client } from "./dist/index.js";
const [url, key] = process.argv.slice(2);
const client = new Client(url, { key });
await client.createExperiment({
  name: "safe", policy: "dp-imed", parameters: { epsilon: 1 }, arms: ["old", "new"],
  reward_window: 3600, default_reward: 0, exposures: true,
  guardrails: [
    { metric: "seconds", epsilon: 0.5, range: [0, 30], limit: 4, missing: 2, serve: "old" },
  ],
  targeting: { attributes: { country: ["FR"] }, otherwise: "old" },
});
const outside = await client.decide("safe", { attributes: { country: "DE" } });
const inside = await client.decide("safe", { attributes: { country: "FR" }, available: ["new"] });
await client.metrics(inside, { seconds: 1.5 });
await client.exposed(inside);
await client.reward(inside, 1);
const finished = await client.finish("safe", "new");
console.log(JSON.stringify({ outside, inside, epsilon: finished.guarantee.epsilon,
  served: finished.served_arm }));
"""
ADMIN = """
import { Client, ServiceConflictError } from "./dist/index.js";
const [url, key] = process.argv.slice(2);
const client = new Client(url, { key });
await client.setPopulation("visitors", 5);
const charged = await client.chargeRelease("visitors", "log of spring", 0.5);
await client.createExperiment({ name: "admin", policy: "dp-imed", parameters: { epsilon: 1 },
  arms: ["a", "b"], reward_window: 3600, population: "visitors" });
const decision = await client.decide("admin", { person: "cleo", sticky: true });
const open = await client.decision(decision);
await client.reward(decision, 1);
const grown = await client.changeArms("admin", { add: ["c"], retire: ["a"], shares: { c: 0.25 } });
const edited = await client.edit("admin", { owner: "pricing", archived: true });
const listed = { usual: await client.experiments(),
  all: await client.experiments({ archived: true, search: "pricing" }) };
const cloned = await client.clone("admin", "admin 2", { purpose: "again" });
const text = new TextDecoder().decode(await client.export("admin", { since: 0 }));
const history = await client.history("admin", 10);
const erased = await client.erase("cleo");
const made = await client.createKey("decide", "shop", { lifetime: 60, experiments: ["admin"] });
const one = await new Client(url, { key: made.key }).decide("admin", { person: "bo" });
await client.revokeKey(made.id);
const hook = await client.setWebhook(
  "hook", "https://example.org/x", ["winner"], "0123456789abcdef"
);
const hooks = await client.webhooks();
await client.deleteWebhook("hook");
let refused = "";
try { await client.changeArms("admin", { add: ["a"] }); } catch (error) { refused = error.message; }
console.log(JSON.stringify({
  left: charged.left_epsilon, open: open.state, arms: grown.arms, retired: grown.retired_arms,
  shares: grown.shares, owner: edited.owner, archived: edited.archived,
  usual: listed.usual.map((each) => each.name), all: listed.all.map((each) => each.name),
  cloned: [cloned.arms, cloned.purpose, cloned.population],
  lines: text.trim().split("\\n").map((line) => JSON.parse(line)).length,
  points: history.decisions.length, erased: erased.decisions,
  label: one.label, revoked: (await client.keys()).find((each) => each.id === made.id).revoked,
  hook, hooks: hooks.length, none: (await client.webhooks()).length, refused,
  events: (await client.ledger()).entries.map((each) => each.note),
  version: (await client.version()).version,
}));
"""
FLAGS = """
import { OpenFeature } from "@openfeature/server-sdk";
import { OFREPProvider } from "@openfeature/ofrep-provider";
const [url, key] = process.argv.slice(2);
const headers = [["Authorization", `Bearer ${key}`]];
await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl: url, headers }));
const flags = OpenFeature.getClient();
const answers = {};
for (const person of ["ann", "bob"]) {
  const context = { targetingKey: person, plan: "free" };
  answers[person] = await flags.getStringDetails("flags", "code default", context);
  answers[`${person} again`] = await flags.getStringDetails("flags", "code default", context);
}
answers.without = await flags.getStringDetails("flags", "code default", {});
answers.unknown = await flags.getStringDetails("no such", "code default", { targetingKey: "ann" });
console.log(JSON.stringify(answers));
await OpenFeature.close();
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node.install(tmp_path_factory.mktemp("client"))  # npm and tsc: slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    from balaclava.client import Client

    with in_a_thread(tmp_path_factory.mktemp("service")) as (address, key, _):
        with Client(address, key) as client:
            for name in ("page", "flags"):
                arms, one = ["plain", "map"], {"epsilon": 1.0}
                client.create_experiment(
                    name, "dp-imed", arms, parameters=one, reward_window=3600.0
                )
        yield address, key


@pytest.mark.slow
@node.needs_node
def test_from_the_first_decision_to_the_results(built: Path, server: tuple[str, str]) -> None:
    told = json.loads(node.run(built, LIFE, *server))
    assert told["state"] == "running"
    assert told["first"]["learns"]
    assert not told["again"]["learns"]
    assert told["again"]["arm"] == told["first"]["arm"]
    assert told["count"] == told["recorded"] == 500
    assert told["decisions"] == 502
    assert told["confidence"] == 0.9
    assert "decisions" in told["sentence"]
    assert told["same"][0] == told["same"][1]
    assert told["epsilon"] == 1.0
    assert "page ä b" in told["names"]
    assert told["budget"] == 3.0
    assert told["paused"] == "paused"
    assert told["errors"] == [
        "ServiceConflictError",
        "ServiceLookupError",
        "ParameterError",
        "ParameterError",
        "ServiceRequestError",
        "ServiceKeyError",
        "ParameterError",
    ]


@pytest.mark.slow
@node.needs_node
def test_the_calls_of_administrators(built: Path, server: tuple[str, str]) -> None:
    import balaclava as bl

    told = json.loads(node.run(built, ADMIN, *server))
    assert (told["left"], told["open"]) == (4.5, "open")
    assert (told["arms"], told["retired"]) == (["a", "b", "c"], ["a"])
    assert told["shares"] == {"c": 0.25}
    assert (told["owner"], told["archived"]) == ("pricing", True)
    assert "admin" not in told["usual"]
    assert told["all"] == ["admin"]
    assert told["cloned"] == [["b", "c"], "again", None]
    assert told["lines"] > 1
    assert told["points"] >= 1
    assert told["erased"] == 1
    assert told["label"] in ("b", "c")
    assert told["revoked"] is not None
    assert told["hook"] == {
        "name": "hook", "url": "https://example.org/x", "events": ["winner"]
    }  # fmt: skip
    assert (told["hooks"], told["none"]) == (1, 0)
    assert "'a'" in told["refused"]
    assert any("log of spring" in note for note in told["events"])
    assert told["version"] == bl.__version__


@pytest.mark.slow
@node.needs_node
def test_safeguards(built: Path, server: tuple[str, str]) -> None:
    told = json.loads(node.run(built, SAFEGUARDS, *server))
    assert (told["outside"]["label"], told["outside"]["learns"]) == ("old", False)
    assert (told["inside"]["label"], told["inside"]["learns"]) == ("new", True)
    assert told["epsilon"] == pytest.approx(1.5)
    assert told["served"] == "new"


@pytest.mark.slow
@node.needs_node
def test_faults_are_retried_under_the_same_request_id(built: Path, server: tuple[str, str]) -> None:
    address, key = server
    busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n"
    proxy = FaultyProxy(address, "refuse", "lose", f"{busy}Connection: close\r\n\r\n", "pass")
    try:
        told = json.loads(node.run(built, FAULTS, proxy.address, key))
    finally:
        proxy.close()
    # Three decisions in all: the lost answer was repeated, and only the first of bob's learns.
    assert [each["learns"] for each in told["made"]] == [True, False, False]
    assert told["one"] == {
        "decision_id": "", "arm": -1, "label": "plain", "propensity": None, "learns": False
    }  # fmt: skip
    assert "mine" in told["message"]
    from balaclava.client import Client

    with Client(address, key) as client:
        assert client.experiment("page")["decisions"] == 3


@pytest.mark.slow
@node.needs_node
def test_a_stock_provider_from_npm(built: Path, server: tuple[str, str]) -> None:
    answers = json.loads(node.run(built, FLAGS, *server))
    for person in ("ann", "bob"):
        first = answers[person]
        assert first["value"] == first["variant"] in ("plain", "map")
        assert first["reason"] == "SPLIT"
        assert first["flagMetadata"]["learns"]
        assert answers[f"{person} again"]["flagMetadata"] == first["flagMetadata"]
    assert answers["without"]["value"] == "code default"
    assert answers["without"]["errorCode"] == "TARGETING_KEY_MISSING"
    assert answers["unknown"]["errorCode"] == "FLAG_NOT_FOUND"


def test_it_has_the_calls_and_the_fields_of_the_service() -> None:
    """What the Python client can call, and what answers have, by name; types are tsc's."""
    from balaclava.client.clients import ServiceCalls, endpoint
    from balaclava.service.http import answers, payloads

    source = node.CLIENT / "src"
    methods = set(re.findall(r"^  async (\w+)\(", (source / "index.ts").read_text(), re.MULTILINE))
    calls = [name for name, each in vars(ServiceCalls).items() if isinstance(each, endpoint)]
    named = {re.sub(r"_(\w)", lambda found: found[1].upper(), name) for name in calls}
    assert named - methods == set()
    documents = (source / "documents.ts").read_text()
    for interface, body in {
        **{name.removesuffix("Out"): each for name, each in vars(answers).items()
           if name.endswith("Out")},
        "Arm": answers.ArmOut, "DecisionState": answers.DecisionStateOut,
        "ApiKey": answers.KeyOut, "LedgerEntry": answers.EntryOut,
        "Decision": payloads.DecisionOut, "ExperimentDefinition": payloads.ExperimentIn,
    }.items():  # fmt: skip
        found = re.search(rf"^export interface {interface}\b.*?\n}}", documents, re.M | re.S)
        if found is None:
            continue
        text = found[0]
        if interface == "Experiment":  # it has those of its definition, too
            text += re.search(r"interface ExperimentDefinition .*?\n}", documents, re.S)[0]  # type: ignore[index]
        fields = {each.alias or name for name, each in body.model_fields.items()}
        assert fields - set(re.findall(r"^  (\w+)\??:", text, re.M)) == set(), interface

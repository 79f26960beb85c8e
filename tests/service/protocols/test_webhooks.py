"""Webhooks: what they tell, how it is signed, what is retried, which addresses are refused."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from balaclava.agents.estimates import EstimateReader
from balaclava.agents.policy_runner import PolicyRunner
from balaclava.service.protocols import webhooks
from balaclava.service.protocols.webhooks import AddressRefusedError, WebhookSender
from balaclava.service.service import Service
from tests.service.http.test_app import client_of, create, decide

SECRET = "a secret of sixteen characters".replace(" ", "-")


class Receiver:
    """A server that keeps what it was sent, and answers with the statuses that it is given."""

    def __init__(self) -> None:
        received: list[tuple[dict[str, Any], str, bytes]] = []
        statuses: list[int] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.append((json.loads(body), self.headers[webhooks.SIGNATURE], body))
                self.send_response(statuses.pop(0) if statuses else 204)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self.received, self.statuses = received, statuses
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


def put(client: TestClient, url: str, **changes: Any) -> Any:
    body = {"url": url, "events": ["winner", "budget"], "secret": SECRET, **changes}
    return client.put("/v1/webhooks/ops", json=body)


def spend(client: TestClient, total: float = 1.0) -> None:
    client.put("/v1/populations/us", json={"epsilon": total})
    create(client, name="charged", population="us", default_reward=0.0)


def name_a_winner(client: TestClient) -> None:
    create(client, parameters={"epsilon": 10.0})
    for _ in range(6):
        made = decide(client, count=300)
        rewards = [
            {"decision_id": each["decision_id"], "value": float(each["label"] == "map")}
            for each in made
        ]
        assert client.post("/v1/rewards", json=rewards).status_code == 200
    assert client.get("/v1/experiments/shop/results").json()["winner"] == "map"


def test_events_are_told_once_and_signed(
    open_service: Callable[..., Service], database: str, receiver: Receiver
) -> None:
    service = open_service(database, webhook_networks=["127.0.0.0/8"])
    client, sender = client_of(service), WebhookSender(service)
    assert put(client, receiver.url).json() == {
        "name": "ops", "url": receiver.url, "events": ["budget", "winner"]
    }  # fmt: skip
    sender.run_once()
    assert receiver.received == []
    name_a_winner(client)
    spend(client)
    for _ in range(3):
        sender.run_once()
    told = {body["event"]: body for body, _, _ in receiver.received}
    assert len(receiver.received) == len(told) == 2
    winner, budget = told["winner"], told["budget"]
    assert winner.keys() == {"id", "event", "experiment", "winner"}
    assert (winner["experiment"], winner["winner"]) == ("shop", "map")
    assert budget.keys() == {"id", "event", "population", "left_epsilon", "epsilon"}
    assert (budget["population"], budget["left_epsilon"]) == ("us", 0.0)
    for _, signature, body in receiver.received:
        moment, digest = signature.removeprefix("t=").split(",v1=")
        signed = f"{moment}.".encode() + body
        assert hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest() == digest
        assert abs(int(moment) - service.clock.now()) < 60
    client.put("/v1/populations/us", json={"epsilon": 1.05})  # still nearly spent, of a new total
    sender.run_once()
    assert receiver.received[-1][0]["epsilon"] == 1.05
    assert SECRET not in client.get("/v1/webhooks").text + client.get("/v1/ledger").text
    assert client.delete("/v1/webhooks/ops").status_code == 204
    assert client.delete("/v1/webhooks/ops").status_code == 404
    assert client.get("/v1/webhooks").json() == {"webhooks": []}


def test_a_winner_that_came_later_is_told(
    open_service: Callable[..., Service], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = open_service(webhook_networks=["127.0.0.1/32"])
    client = client_of(service)
    put(client, receiver.url)
    create(client)
    client.patch("/v1/experiments/shop", json={"add_arms": ["grid"]})
    monkeypatch.setattr(EstimateReader, "winner", lambda reader: 3)
    WebhookSender(service).run_once()
    assert [body["winner"] for body, _, _ in receiver.received] == ["grid"]


def test_a_changed_mean_is_told(
    open_service: Callable[..., Service], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = open_service(webhook_networks=["127.0.0.1/32"])
    client = client_of(service)
    put(client, receiver.url, events=["drift"])
    create(client)
    monkeypatch.setattr(PolicyRunner, "changed_arms", lambda runner: ("map",))
    for _ in range(2):
        WebhookSender(service).run_once()
    ((body, _, _),) = receiver.received
    assert body == {"id": body["id"], "event": "drift", "experiment": "shop", "arm": "map"}


def test_what_fails_is_tried_again_later(
    open_service: Callable[..., Service], receiver: Receiver
) -> None:
    service = open_service(webhook_networks=["127.0.0.1/32"])
    client, sender = client_of(service), WebhookSender(service)
    put(client, receiver.url)
    spend(client)
    receiver.statuses += [500, 302]
    sender.run_once()
    assert len(receiver.received) == 1
    for wait, attempts in ((9.0, 1), (2.0, 2), (18.0, 2), (3.0, 3), (4_000.0, 3)):
        service.clock.catch_up(service.clock.now() + wait)
        sender.run_once()
        assert len(receiver.received) == attempts  # the same event, and redirects are not followed
    assert len({body["id"] for body, _, _ in receiver.received}) == 1


def test_the_queue_outlives_a_crash(
    open_service: Callable[..., Service], receiver: Receiver
) -> None:
    service = open_service(webhook_networks=["127.0.0.1/32"])
    client = client_of(service)
    put(client, receiver.url)
    spend(client)
    receiver.statuses.append(503)
    WebhookSender(service).run_once()
    service.close()
    again = open_service(webhook_networks=["127.0.0.1/32"])
    again.clock.catch_up(again.clock.now() + 15.0)
    WebhookSender(again).run_once()
    assert [body["event"] for body, _, _ in receiver.received] == ["budget", "budget"]


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1:9/", "https://127.0.0.1/", "https://localhost/", "https://[::1]/"),
        *("https://10.0.0.1/", "https://192.168.1.1/", "https://169.254.169.254/latest"),
        *("https://[fe80::1]/", "https://[fd00::1]/", "https://[::ffff:10.0.0.1]/"),
        *("https://[64:ff9b::a00:1]/", "https://[2002:a00:1::1]/", "https://0.0.0.0/"),
        *("https://[64:ff9b:1::a00:1]/", "https://[::7f00:1]/", "https://[fec0::1]/"),
        *("https://100.64.0.1/", "https://224.0.0.1/", "https://2130706433/", "http://8.8.8.8/"),
    ],
)
def test_addresses_that_are_not_public_are_refused(url: str) -> None:
    with pytest.raises(AddressRefusedError):
        webhooks.checked_address(url, [])


def test_an_operator_allows_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = [ipaddress.ip_network("10.1.0.0/16")]
    place = webhooks.checked_address("http://10.1.2.3:8080/x", allowed)
    assert place == ("10.1.2.3", 8080, "10.1.2.3")
    assert webhooks.checked_address("https://8.8.8.8/", allowed) == ("8.8.8.8", 443, "8.8.8.8")
    with pytest.raises(AddressRefusedError):
        webhooks.checked_address("http://10.2.0.1/", allowed)

    def both(*asked: Any, **more: Any) -> Any:
        return [(0, 0, 0, "", (address, 443)) for address in ("8.8.8.8", "10.2.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with pytest.raises(AddressRefusedError):
        webhooks.checked_address("https://example.org/", allowed)


def certificate(folder: Path) -> Path:
    """A file with a key of 127.0.0.1, and a certificate that it signed itself."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    begins = datetime(2020, 1, 1, tzinfo=UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, begins, begins.replace(2100))
    signed = made.add_extension(address, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file = folder / "server.pem"
    file.write_bytes(key.private_bytes(pem, *form) + signed.public_bytes(pem))
    return file


@pytest.mark.parametrize("secure", [False, True])
def test_a_slow_answer_ends_at_the_deadline(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes after two seconds in which something always comes."""
    file = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setattr(webhooks, "_WHOLE_SECONDS", 0.5)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)

    def answer(listener: socket.socket) -> None:
        connection = listener.accept()[0]
        with contextlib.suppress(OSError):
            stream = context.wrap_socket(connection, server_side=True) if secure else connection
            for _ in range(40):
                stream.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                time.sleep(0.05)
            stream.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        url = f"http{'s' * secure}://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises((OSError, http.client.HTTPException)):
            webhooks.deliver(url, SECRET, b"{}", 0.0, [ipaddress.ip_network("127.0.0.0/8")])


@pytest.mark.parametrize(
    "changes",
    [
        *({"url": "ftp://example.org/"}, {"url": "https://user:pass@example.org/"}),
        *({"url": "https:///x"}, {"url": "https://a b/"}, {"url": "https://x:port/"}),
        *({"events": []}, {"events": ["reward"]}, {"secret": "short"}, {"more": 1}),
    ],
)
def test_a_webhook_is_checked(
    open_service: Callable[..., Service], changes: dict[str, Any]
) -> None:
    client = client_of(open_service())
    answer = put(client, **{"url": "https://example.org/", **changes})
    assert answer.status_code == 422
    assert "pass" not in answer.text
    assert next(iter(changes)) in answer.json()["detail"] or "more" in changes
    assert client.get("/v1/webhooks").json() == {"webhooks": []}


def test_a_refused_address_is_only_logged(
    open_service: Callable[..., Service], receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    service = open_service()
    client = client_of(service)
    put(client, receiver.url)
    spend(client)
    WebhookSender(service).run_once()
    assert receiver.received == []
    assert "--webhook-network" in caplog.text
    assert SECRET not in caplog.text

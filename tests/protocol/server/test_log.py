"""The server's log, its keys, and which table a report is counted for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import copied
import pytest
from protocol_servers import (
    Running,
    error_of,
    new_id,
    publish,
    small_domain,
    small_table,
)
from typer.testing import CliRunner

from panda_mdp.cli.app import app
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import TableDeploymentRequest
from panda_mdp.protocol.messages.log import (
    Log,
)
from panda_mdp.protocol.messages.signing import Keyring, KeySheet, SigningKey
from panda_mdp.protocol.server.store.catalogue import all_tables, examine, store_table
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import (
    set_terms,
    sign_all,
    sign_deployment,
    store_deployment,
)
from panda_mdp.protocol.server.store.log import entries, whole_log
from panda_mdp.table.encode import encode

KEY = SigningKey.generate()


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    """A table in two versions, the second in force."""
    domain = small_domain()
    with Store.create(database) as made, made.write() as session:
        for epsilon in (3.0, 2.0):
            candidate = examine(encode(small_table(domain, epsilon=epsilon)))
            store_table(session, KEY, "city", candidate)
        request = TableDeploymentRequest(
            kind="table", name="main", table=TableRef(name="city", version=1)
        )
        row, _ = store_deployment(session, request, candidate.promise)
        sign_deployment(session, KEY, row)
        set_terms(row, TableRef(name="city", version=2), candidate.promise, {})
        sign_deployment(session, KEY, row)
        sign_deployment(session, KEY, row)
    with Store.open(database) as opened:
        yield opened


def shown(store: Store) -> Log:
    with store.read() as session:
        return whole_log(session)


def test_everything_signed_is_in_the_log_once_in_order(store: Store) -> None:
    with store.read() as session:
        kinds = [entry.splitlines()[0] for entry in entries(session, 0, 100).entries]
        assert entries(session, 3, 1).entries == entries(session, 0, 100).entries[3:]
    assert kinds == ["panda-mdp table 1"] * 2 + ["panda-mdp deployment 1"] * 2
    found = shown(store)
    found.verify(Keyring(KEY.public, [KEY.public]))
    assert found.head.size == 4


def test_another_key_signs_the_same_words(store: Store) -> None:
    """Nothing is published by it: the log is as long as before."""
    before, key = shown(store), SigningKey.generate()
    with store.write() as session:
        sign_all(session, key)
        sign_all(session, key)
        infos = all_tables(session)
    assert shown(store).leaves == before.leaves
    shown(store).verify(Keyring(key.public, [key.public]))
    for info in infos:
        key.public.verify(info.signed, info.signature)
        assert info.key_id == key.id


def test_a_server_with_a_log_and_reports_by_table(
    make_server: Callable[..., Running], tmp_path: Path
) -> None:
    server = make_server()
    admin, domain = server.admin, small_domain()
    assert error_of(server.client().get("/v1/log")) == (404, "not_found")
    first = publish(admin, small_table(domain), "city", tmp_path)
    second = publish(admin, small_table(domain, epsilon=2.0), "city", tmp_path)
    wanted = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}}
    admin.post("/v1/deployments", json=wanted | {"reports_per_period": 100})
    (reporter,) = server.reporters(1)
    address = "/v1/deployments/main/reports"

    def send(identity: str | None, key: str = "") -> int:
        body = {"id": key or new_id(), "output": 5, "table": identity}
        return reporter.post(address, json=body).status_code

    key = new_id()
    assert (send(first["identity"], key), send(second["identity"])) == (201, 409)
    token = reporter.headers["authorization"].removeprefix("Bearer ")
    allowed = Allowance(epsilon=10.0, period_epsilon=100.0, snap_km=50.0)
    with Client(server.url, token, tmp_path / "user", allowed) as client:
        plan = client.plan("main")
        # Another table comes into force between plan and report.
        admin.patch("/v1/deployments/main", json={"table": {"name": "city", "version": 2}})
        with pytest.raises(Exception, match="version 2 of this deployment"):
            client.report(plan, plan.record(1))
        again = client.plan("main", accept_update=True)
        client.report(again, again.record(2))
        assert client.log().head.size == 4
    # Accepted stays accepted; what is late is refused, not counted for the newer table.
    assert (send(first["identity"], key), send(first["identity"])) == (200, 409)
    lines = admin.get(address).text
    assert lines.count('"version":1') == 1 and lines.count('"version":2') == 1


def run(*words: str | Path) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, (found.output, found.exception)
    return found.output.strip()


def test_keys_of_a_database(tmp_path: Path) -> None:
    """Init never makes another key in silence; certificates and successors are what lets one in."""
    database, key = str(tmp_path / "panda.db"), tmp_path / "operator.key"
    offline, sheet = tmp_path / "offline.key", tmp_path / "keys.json"
    command = ["serve", "--init", "--database", database, "--port", "0", "--key", str(key)]

    def serves(*options: str) -> None:
        Running(database, tmp_path, *options).start().stop()

    def refused(why: str, *options: str) -> None:
        found = copied.run([*command, *options], tmp_path)
        assert found.returncode == 2 and why in " ".join(found.stderr.split()), found.stderr

    serves()
    key.rename(tmp_path / "lost.key")
    refused("restore it from a backup")
    assert not key.exists()
    new = run("signing", "new", key)
    refused("clients refuse")
    # The old key names an offline one, which certifies the new one.
    lost, successor = tmp_path / "lost.key", run("signing", "new", offline)
    run("signing", "succeed", lost, successor, "--keys", sheet)
    refused("has not certified", "--keys", str(sheet))
    run("signing", "certify", offline, new, "--keys", sheet, "--days", "10")
    serves("--keys", str(sheet))
    with Store.open(database) as store:
        assert store.value("operator") == run("signing", "show", offline)
    # From now on the offline key is the operator's; a lost server key is just replaced.
    key.unlink()
    run("signing", "certify", offline, run("signing", "new", key), "--keys", sheet)
    assert len(KeySheet.load(sheet).certificates) == 2
    serves("--keys", str(sheet))
    refused("clients refuse")


def test_serve_makes_another_key_only_when_asked(tmp_path: Path) -> None:
    """A lost key: refused without --new-key, made with it, and the operator's from then on."""
    database, key = str(tmp_path / "panda.db"), tmp_path / "operator.key"
    Running(database, tmp_path).start().stop()
    before = SigningKey.load(key).public
    key.unlink()
    command = ["serve", "--init", "--database", database, "--port", "0", "--key", str(key)]
    refused = copied.run(command, tmp_path)
    assert refused.returncode == 2 and not key.exists()
    assert "--new-key makes one that every client refuses" in " ".join(refused.stderr.split())
    Running(database, tmp_path, "--new-key").start().stop()
    after = SigningKey.load(key).public
    assert after != before
    with Store.open(database) as store:
        assert store.value("operator") == after.base64
    Running(database, tmp_path).start().stop()
    assert SigningKey.load(key).public == after

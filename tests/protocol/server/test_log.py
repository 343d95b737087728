"""The server's log, its keys, and which table a report is counted for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from protocol_servers import (
    Running,
    error_of,
    new_id,
    publish,
    small_domain,
    small_table,
)
from sqlalchemy import delete, select
from typer.testing import CliRunner

from panda_mdp.cli.app import app
from panda_mdp.errors import InvalidInputError
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.client.trust import check_head
from panda_mdp.protocol.messages.catalogue import TableInfo, TableRef
from panda_mdp.protocol.messages.deployments import TableDeploymentRequest
from panda_mdp.protocol.messages.keys import Keyring
from panda_mdp.protocol.messages.log import Log, LogProof
from panda_mdp.protocol.messages.merkle import check_consistency, check_inclusion, root_of
from panda_mdp.protocol.messages.signing import SigningKey, table_entry
from panda_mdp.protocol.server.store.catalogue import Candidate, store_table, table_facts
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import find, set_table, store_deployment
from panda_mdp.protocol.server.store.log import entries, proof, whole_log
from panda_mdp.protocol.server.store.schema import heads, log, tables
from panda_mdp.protocol.server.store.statements import sign_all, sign_deployment
from panda_mdp.table.pmdc.archive import decode, encode

KEY = SigningKey.generate()


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    """A table in two versions, the second in force."""
    domain = small_domain()
    with Store.create(database) as made, made.write() as connection:
        for epsilon in (3.0, 2.0):
            data = encode(small_table(domain, epsilon=epsilon))
            store_table(connection, KEY, "city", Candidate(table_facts(decode(data)), data))
        request = TableDeploymentRequest(
            kind="table", name="main", table=TableRef(name="city", version=1)
        )
        store_deployment(connection, request, {})
        sign_deployment(connection, KEY, find(connection, "main"))
        set_table(connection, "main", TableRef(name="city", version=2), {})
        sign_deployment(connection, KEY, find(connection, "main"))
        sign_deployment(connection, KEY, find(connection, "main"))
    with Store.open(database) as opened:
        yield opened


def shown(store: Store) -> Log:
    with store.read() as connection:
        return whole_log(connection)


def test_everything_signed_is_in_the_log_once_in_order(store: Store) -> None:
    with store.read() as connection:
        kinds = [entry.splitlines()[0] for entry in entries(connection, 0, 100).entries]
        assert entries(connection, 3, 1).entries == entries(connection, 0, 100).entries[3:]
    assert kinds == ["panda-mdp table 1"] * 2 + ["panda-mdp deployment 1"] * 2
    found = shown(store)
    assert len(check_head(found, Keyring(KEY.public, [KEY.public]))) == 4


def test_proofs_are_of_the_log(store: Store) -> None:
    leaves = [bytes.fromhex(leaf) for leaf in shown(store).leaves]
    with store.read() as connection:
        for first, size in itertools.product(range(5), range(1, 5)):
            root = root_of(leaves[:size])
            if first < size:
                made = proof(connection, first, size, inclusion=True)
                parts = [bytes.fromhex(part) for part in made.proof]
                assert check_inclusion(leaves[first], first, size, parts, root)
            if 1 <= first <= size:
                made = proof(connection, first, size, inclusion=False)
                parts = [bytes.fromhex(part) for part in made.proof]
                assert check_consistency(first, size, root_of(leaves[:first]), root, parts)


def test_what_an_earlier_layout_signed_enters_the_log(store: Store) -> None:
    before = shown(store)
    with store.write() as connection:
        connection.execute(delete(log))
        connection.execute(delete(heads))
        sign_all(connection, KEY)
    after = shown(store)
    assert sorted(after.leaves) == sorted(before.leaves)
    check_head(after, Keyring(KEY.public, [KEY.public]))


def test_another_key_signs_the_same_words(store: Store) -> None:
    """Nothing is published by it: the log is as long as before."""
    before, key = shown(store), SigningKey.generate()
    with store.write() as connection:
        sign_all(connection, key)
        sign_all(connection, key)
        infos = [
            TableInfo.model_validate_json(info)
            for info in connection.execute(select(tables.c.info)).scalars()
        ]
    assert shown(store).leaves == before.leaves
    check_head(shown(store), Keyring(key.public, [key.public]))
    for info in infos:
        key.public.verify(table_entry(info), info.signature)
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

    def send(sha256: str | None, key: str = "") -> int:
        body = {"id": key or new_id(), "output": 5, "table": sha256}
        return reporter.post(address, json=body).status_code

    key = new_id()
    assert (send(first["sha256"], key), send(second["sha256"])) == (201, 409)
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
        assert client.trust.head(client.server).size == 4
    # Accepted stays accepted; what is late is refused, not counted for the newer table.
    assert (send(first["sha256"], key), send(first["sha256"])) == (200, 409)
    lines = admin.get(address).text
    assert lines.count('"version":1') == 1 and lines.count('"version":2') == 1
    size = Log.model_validate_json(server.client().get("/v1/log").content).head.size
    asked = server.client().get("/v1/log/consistency", params={"first": 2, "size": size})
    assert LogProof.model_validate_json(asked.content).size == size
    wrong = server.client().get("/v1/log/inclusion", params={"first": 9, "size": size})
    assert error_of(wrong) == (422, "invalid")


def run(*words: str | Path) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, (found.output, found.exception)
    return found.output.strip()


def test_keys_of_a_database(tmp_path: Path) -> None:
    """Init never makes another key in silence; certificates and successors are what lets one in."""
    from panda_mdp.cli.serve import _check_key, _initialise
    from panda_mdp.protocol.messages.keys import KeySheet

    with Store.create(str(tmp_path / "panda.db")) as store:
        key = tmp_path / "operator.key"
        _initialise(store, key, new_key=False)
        _check_key(store, key, None, new_key=False)
        key.rename(tmp_path / "lost.key")
        with pytest.raises(InvalidInputError, match="restore it from a backup"):
            _initialise(store, key, new_key=False)
        assert not key.exists()
        new = run("signing", "new", key)
        with pytest.raises(InvalidInputError, match="clients refuse"):
            _check_key(store, key, None, new_key=False)
        # The old key names an offline one, which certifies the new one.
        offline, sheet = tmp_path / "offline.key", tmp_path / "keys.json"
        run(
            "signing",
            "succeed",
            tmp_path / "lost.key",
            run("signing", "new", offline),
            "--keys",
            sheet,
        )
        with pytest.raises(InvalidInputError, match="has not certified"):
            _check_key(store, key, KeySheet.load(sheet), new_key=False)
        run("signing", "certify", offline, new, "--keys", sheet, "--days", "10")
        _check_key(store, key, KeySheet.load(sheet), new_key=False)
        assert store.value("operator") == run("signing", "show", offline)
        # From now on the offline key is the operator's; a lost server key is just replaced.
        third = tmp_path / "third.key"
        run("signing", "certify", offline, run("signing", "new", third), "--keys", sheet)
        assert len(KeySheet.load(sheet).certificates) == 2
        _check_key(store, third, KeySheet.load(sheet), new_key=False)
        with pytest.raises(InvalidInputError, match="clients refuse"):
            _check_key(store, third, None, new_key=False)


def test_serve_makes_another_key_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost key: refused without --new-key, made with it, and the operator's from then on."""
    served: list[str] = []
    monkeypatch.setattr("panda_mdp.protocol.server.app.create_app", lambda *_: None)
    monkeypatch.setattr("panda_mdp.cli.serve._run", lambda *_: served.append("once"))
    database, key = str(tmp_path / "panda.db"), tmp_path / "operator.key"
    command = ("serve", "--init", "--database", database, "--key", key)
    run(*command)
    before = SigningKey.load(key).public
    key.unlink()
    refused = CliRunner().invoke(app, [str(word) for word in command])
    assert refused.exit_code == 2
    assert "--new-key makes one that every client refuses" in refused.output
    assert not key.exists()
    run(*command, "--new-key")
    after = SigningKey.load(key).public
    assert after != before
    with Store.open(database) as store:
        assert store.value("operator") == after.base64
    run(*command)
    assert SigningKey.load(key).public == after
    assert len(served) == 3

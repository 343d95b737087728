"""Reports removed by token, batch and receipt, and everything that follows them; roles; exports."""

from __future__ import annotations

import csv
import io
import secrets
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from protocol_servers import (
    Running,
    domain_body,
    error_of,
    new_id,
    publish,
    small_domain,
    small_table,
)
from sqlalchemy import select

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import TableDeploymentRequest
from panda_mdp.protocol.messages.service import RemovalRequest
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.auth import TokenBook, invite
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.catalogue import examine, store_table
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import find, store_deployment
from panda_mdp.protocol.server.store.log import check_log, entries
from panda_mdp.protocol.server.store.reports import (
    HOUR_MS,
    Ball,
    Quota,
    Report,
    count_reports,
    remove,
    remove_old,
    remove_reports,
    store_reports,
    take_ball,
)
from panda_mdp.protocol.server.store.schema import ReportRow
from panda_mdp.table.encode import encode

DAY_MS = 24 * HOUR_MS
NOW = 1_000 * DAY_MS + 7 * HOUR_MS
KEY = SigningKey.generate()
REPORTS = "/v1/deployments/main/reports"


class Site:
    """A deployment with reports of two batches, three tokens each, two reports of each token."""

    def __init__(self, store: Store) -> None:
        self.store, book = store, TokenBook(store)
        with store.write() as session:
            row = examine(encode(small_table(small_domain())))
            store_table(session, KEY, "city", row)
            request = TableDeploymentRequest(
                kind="table",
                name="main",
                table=TableRef(name="city", version=1),
                retention_days=1,
            )
            self.id = store_deployment(session, request, row.promise)[0].id
            code = invite(session, 3)
        invited = [book.make("reporter", code=code)[0].id for _ in range(3)]
        self.batch = code.split("_")[1]
        self.tokens = [*invited, *(made.id for made in book.make("reporter", count=3))]
        self.receipts: list[bytes] = []
        with store.reports() as session:
            for hour in range(2):
                batch = []
                for number, token in enumerate(self.tokens):
                    self.receipts.append(uuid.uuid4().bytes)
                    report = Report(self.id, self.receipts[-1], token, 1, 5 * (number % 3))
                    batch.append((report, Quota(DAY_MS, 10)))
                assert store_reports(session, batch, NOW + hour * HOUR_MS) == ["new"] * 6

    def change(self, action: str, **chosen: str) -> tuple[int, int]:
        request = RemovalRequest(action=action, **chosen)  # type: ignore[arg-type]
        with self.store.everything() as session:
            done = remove(session, KEY, request, "")
        return done.reports, done.tokens

    def counted(self) -> tuple[int, int]:
        """Reports that are there, and that are counted."""
        with self.store.read() as session:
            there = session.scalars(select(ReportRow).filter_by(deployment=self.id)).all()
            return len(there), count_reports(session, self.id, frozenset()).reports

    def logged(self) -> list[str]:
        with self.store.read() as session:
            assert check_log(session) is not None
            return [text for text in entries(session, 0, 100).entries if "removal" in text]


@pytest.fixture
def site(database: str) -> Iterator[Site]:
    with Store.create(database) as store:
        yield Site(store)


def test_a_batch_is_set_aside_taken_back_and_erased(site: Site) -> None:
    assert site.counted() == (12, 12)
    assert site.change("exclude", batch=site.batch) == (6, 3)
    assert site.counted() == (6, 6)
    # Nothing is left to set aside, and the tokens are revoked already.
    assert site.change("exclude", batch=site.batch) == (0, 0)
    assert site.change("include", batch=site.batch) == (6, 0)
    assert site.counted() == (12, 12)
    assert site.change("exclude", batch=site.batch) == (6, 0)
    assert site.change("erase", batch=site.batch) == (6, 0)
    assert site.change("include", batch=site.batch) == (0, 0)
    assert site.counted() == (6, 6)
    book = TokenBook(site.store)
    assert book.fetch(site.tokens[0]) is None and book.fetch(site.tokens[3]) is not None
    # The log says that something was removed: not what, and not of whom.
    found = site.logged()
    assert found == [f"panda-mdp removal 1\nmain\n{number}\n" for number in range(1, 5)]


def test_a_token_a_receipt_and_a_persons_own_word(site: Site) -> None:
    assert site.change("erase", token=site.tokens[4]) == (2, 1)
    receipt = site.receipts[0].hex()
    # Ids are random UUIDs on the wire; what is stored is their bytes.
    dashed = "-".join(receipt[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    request = RemovalRequest.model_construct(action="erase", token=None, batch=None, receipt=dashed)
    with site.store.everything() as session:
        assert remove(session, KEY, request, "").reports == 1
        mine = ReportRow.token == site.tokens[5]
        assert remove_reports(session, KEY, mine, "erase") == 2
        assert remove_reports(session, KEY, mine, "erase") == 0
    assert site.counted() == (7, 7)
    assert TokenBook(site.store).fetch(site.tokens[5]) is not None
    with pytest.raises(Failure, match="not_found"):
        site.change("erase", token="0" * 12)


def test_what_is_set_aside_goes_by_its_age_too(site: Site) -> None:
    site.change("exclude", batch=site.batch)
    assert remove_old(site.store, now=NOW + 3 * DAY_MS) == 12
    with site.store.read() as session:
        assert not session.scalars(select(ReportRow)).all()
        assert find(session, "main").id == site.id


def test_a_fresh_token_has_no_quota_of_the_past(site: Site) -> None:
    """It had twice as many as the others."""
    at, token = NOW + DAY_MS, site.tokens[0]

    def send(since_ms: int, count: int) -> list[str]:
        quota = Quota(DAY_MS, 2, since_ms)
        batch = [
            (Report(site.id, secrets.token_bytes(16), f"{since_ms:x}", 1, 5), quota)
            for _ in range(count)
        ]
        with site.store.reports() as session:
            return list(store_reports(session, batch, at))

    assert send(at - 1, 5) == ["new"] * 2 + ["spent"] * 3
    begun = at // DAY_MS * DAY_MS
    assert send(begun, 5) == ["new"] * 2 + ["spent"] * 3
    assert send(begun - 1, 5) == ["new"] * 4 + ["spent"]
    assert token


def test_a_one_use_report_that_was_erased_does_not_come_back(site: Site) -> None:
    """Its token is good in two periods, for one output in both."""
    made, once = secrets.token_bytes(16), Quota(DAY_MS, 1, once=True)
    found = []
    for at, output in ((NOW, 5), (NOW, 6), (NOW + DAY_MS, 6)):
        with site.store.reports() as session:
            report = Report(site.id, made, "nameless", 1, output)
            found += store_reports(session, [(report, once)], at)
        with site.store.everything() as session:
            remove_reports(session, KEY, ReportRow.id == made, "erase")
    assert found == ["new", "spent", "spent"]


def test_balls_have_a_quota(site: Site) -> None:
    quota, found = Quota(DAY_MS, 2), []
    for _ in range(10):
        with site.store.reports() as session:
            found.append(take_ball(session, Ball(site.id, "t", NOW // DAY_MS), quota))
    assert found == ["new"] * 8 + ["spent"] * 2
    with site.store.reports() as session:
        assert take_ball(session, Ball(site.id, "t", NOW // DAY_MS + 1), quota) == "new"


def test_what_was_set_aside_does_not_come_back_by_being_sent_again(site: Site) -> None:
    receipt = site.receipts[0]
    report = Report(site.id, receipt, site.tokens[0], 1, 0)
    assert site.change("exclude", receipt=str(uuid.UUID(bytes=receipt)))[0] == 1
    with site.store.reports() as session:
        assert store_reports(session, [(report, Quota(DAY_MS, 10))], NOW) == ["known"]
        other = report._replace(output=5)
        assert store_reports(session, [(other, Quota(DAY_MS, 10))], NOW) == ["conflict"]
    assert site.change("include", receipt=str(uuid.UUID(bytes=receipt)))[0] == 1


@pytest.fixture
def running(make_server: Callable[..., Running], tmp_path: Path) -> Running:
    server = make_server(None, "--enrol-rate", "3")
    publish(server.admin, small_table(small_domain()), "city", tmp_path)
    server.admin.post("/v1/domains", json=domain_body(small_domain(), "city"))
    wanted = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}}
    made = server.admin.post("/v1/deployments", json=wanted | {"reports_per_period": 10})
    assert made.status_code == 201
    return server


def test_over_the_wire(running: Running) -> None:
    admin = running.admin
    one, two = running.reporters(2)
    for reporter in (one, two):
        for output in (5, 10):
            body = {"id": new_id(), "output": output}
            assert reporter.post(REPORTS, json=body).status_code == 201
    last = body["id"]

    # Roles: who may read what.
    made = {
        role: running.client(
            admin.post("/v1/tokens", json={"role": role}).json()["tokens"][0]["token"]
        )
        for role in ("analyst", "auditor")
    }
    may = {
        (role, path): client.get(path).status_code
        for role, client in made.items()
        for path in (REPORTS, "/v1/deployments/main/counts", "/v1/actions", "/v1/tokens")
    }
    assert [may["analyst", path] for path in (REPORTS, "/v1/deployments/main/counts")] == [200, 200]
    assert [may["analyst", path] for path in ("/v1/actions", "/v1/tokens")] == [403, 403]
    assert [code for (role, _), code in may.items() if role == "auditor"] == [403, 403, 200, 403]

    # One export in four formats, and windows of time.
    analyst = made["analyst"]
    lines = analyst.get(REPORTS).text.splitlines()
    rows = list(csv.DictReader(io.StringIO(analyst.get(REPORTS, params={"format": "csv"}).text)))
    parquet = analyst.get(REPORTS, params={"format": "parquet"}).content
    arrow = analyst.get(REPORTS, params={"format": "arrow"}).content
    table = pq.read_table(pa.BufferReader(parquet))
    assert pa.ipc.open_stream(arrow).read_all().equals(table)
    assert len(lines) == len(rows) == table.num_rows == 4
    assert [int(row["output"]) for row in rows] == table["output"].to_pylist() == [5, 10, 5, 10]
    middle = rows[2]["at"]
    for window, count in (
        ({"since": middle}, 2),
        ({"until": middle}, 2),
        ({"since": "2999-01-01"}, 0),
    ):
        found = analyst.get(REPORTS, params=window).text.splitlines()
        assert len(found) == count or rows[1]["at"] == middle

    # Removed by a receipt, by its own bearer, and by a batch.
    def removed(**body: str) -> tuple[int, int]:
        answer = admin.post("/v1/removals", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["reports"], answer.json()["tokens"]

    assert removed(action="erase", receipt=last) == (1, 0)
    assert one.delete("/v1/reports").json()["reports"] == 2
    tokens = admin.get("/v1/tokens").json()["tokens"]
    batches = {token["batch"] for token in tokens if token["role"] == "reporter"}
    assert removed(action="exclude", batch=batches.pop()) == (1, 2) and not batches
    assert analyst.get(REPORTS).text == ""
    assert admin.get("/v1/deployments/main/counts").json()["reports"] == 0
    assert error_of(one.post(REPORTS, json={"id": new_id(), "output": 5}))[0] == 401
    assert error_of(admin.post("/v1/removals", json={"action": "erase"})) == (422, "invalid")
    assert error_of(one.post("/v1/removals", json={}))[0] == 401


def test_one_address_does_not_take_all_places(running: Running) -> None:
    with Store.open(running.database) as store, store.write() as session:
        code = invite(session, 300)
    found = [running.client().post("/v1/enrol", json={"code": code}) for _ in range(8)]
    codes = [answer.status_code for answer in found]
    assert codes[:3] == [201] * 3 and set(codes[4:]) == {429}
    # With a token of its own it is no other.
    mine = running.client(found[0].json()["token"])
    assert mine.post("/v1/enrol", json={"code": code}).status_code == 429

"""A witness signs heads of the log; whoever pinned one believes nothing that it has not signed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from protocol_servers import Running, error_of, publish, small_domain, small_table
from typer.testing import CliRunner, Result

from panda_mdp.cli.app import app
from panda_mdp.errors import SignatureError
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.messages.log import CoSigned
from panda_mdp.protocol.messages.signing import SigningKey


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def deploy(server: Running, name: str) -> None:
    body = {"kind": "table", "name": name, "table": {"name": "city", "version": 1}}
    assert server.admin.post("/v1/deployments", json=body).status_code == 201


def test_what_no_witness_has_signed_is_not_believed(
    make_server: Callable[..., Running], tmp_path: Path
) -> None:
    server = make_server()
    publish(server.admin, small_table(small_domain()), "city", tmp_path)
    deploy(server, "first")
    key = SigningKey.create(tmp_path / "witness.key")
    made = server.admin.post("/v1/tokens", json={"role": "auditor"}).json()["tokens"][0]["token"]
    (tmp_path / "token").write_text(made)
    user = Client(server.url, None, tmp_path / "user", Allowance(5.0, 5.0))
    with user as client:
        client.plan("first")
        pinned = ("client", "trust", server.url, "--folder", tmp_path / "user")
        assert command(*pinned, "--witness", key.public.base64).exit_code == 0
        with pytest.raises(SignatureError, match="has not signed this log"):
            client.plan("first")
        watch = ("witness", server.url, "--key", tmp_path / "witness.key", "--folder", tmp_path)
        seen = command(*watch, "--token-file", tmp_path / "token")
        assert seen.exit_code == 0, seen.output
        CoSigned.model_validate_json(seen.output).verify(key.public)
        client.plan("first")
        # Published since: not seen by the witness yet.
        deploy(server, "second")
        client.plan("first")
        with pytest.raises(SignatureError, match="not in the operator's log"):
            client.plan("second")
        assert command(*watch, "--token-file", tmp_path / "token").exit_code == 0
        client.plan("second")
        (entry,) = client.log().witnesses
    # What is of another log, or signed by somebody else, is not published.
    auditor, other = server.client(made), SigningKey.generate()
    facts = {"size": 1, "root": "0" * 64, "at": 1}
    wrong = CoSigned.by(other, public=other.public.base64, **facts).model_dump()
    assert error_of(auditor.post("/v1/log/witnesses", json=wrong)) == (409, "conflict")
    forged = {**entry.model_dump(), "public": other.public.base64}
    assert error_of(auditor.post("/v1/log/witnesses", json=forged)) == (422, "invalid")
    assert error_of(server.client().post("/v1/log/witnesses", json=forged))[0] == 401

"""The scripts of deploy/: an installation in a folder of its own, a backup, and its restore."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest
import yaml
from protocol_servers import Postgres, Running, new_id, publish, small_domain, small_table

import panda_mdp as pm
from panda_mdp.protocol.server.store.database import Store

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"


def wheel(folder: Path) -> Path:
    """This checkout as a wheel, put together here: the tests have no network for a build tool."""
    path = folder / f"panda_mdp-{pm.__version__}-py3-none-any.whl"
    info = f"panda_mdp-{pm.__version__}.dist-info"
    texts = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: panda-mdp\nVersion: {pm.__version__}\n"
        "Provides-Extra: server\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\npanda-mdp = panda_mdp.cli:main\n",
    }
    record = []
    with zipfile.ZipFile(path, "w") as archive:
        files = {
            str(file.relative_to(ROOT / "src")): file.read_bytes()
            for package in ("panda_mdp", "panda_paper")
            for file in (ROOT / "src" / package).rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        }
        for name, data in {
            **files,
            **{name: text.encode() for name, text in texts.items()},
        }.items():
            archive.writestr(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            record.append(f"{name},sha256={digest},{len(data)}")
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))
    return path


def dependencies(folder: Path) -> Path:
    """What is installed here, apart from this project, for an environment that has nothing."""
    folder.mkdir()
    for entry in Path(site.getsitepackages()[0]).iterdir():
        if "panda_mdp" not in entry.name and entry.name != "__pycache__":
            (folder / entry.name).symlink_to(entry)
    return folder


def shell(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(part) for part in command],
        env=env | variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_install_script(tmp_path: Path) -> None:
    prefix, data = tmp_path / "opt", tmp_path / "data"
    found = shell(
        DEPLOY / "install.sh",
        prefix,
        data,
        PYTHON=sys.executable,
        PANDA_MDP_SOURCE=str(wheel(tmp_path)),
        PYTHONPATH=str(dependencies(tmp_path / "site")),
        PIP_NO_DEPS="1",
        PIP_NO_INDEX="1",
    )
    assert found.returncode == 0, found.stderr
    unit = (prefix / "panda-mdp.service").read_text()
    assert f"ExecStart={prefix}/bin/panda-mdp serve" in unit and "@" not in unit
    assert data.stat().st_mode & 0o777 == 0o700
    where = "import panda_mdp; print(panda_mdp.__file__)"
    assert (
        str(prefix)
        in shell(prefix / "bin/python", "-c", where, PYTHONPATH=str(tmp_path / "site")).stdout
    )
    if shutil.which("systemd-analyze"):
        # The account is made by the operator.
        checked = shell("systemd-analyze", "verify", prefix / "panda-mdp.service")
        assert "Unknown" not in checked.stderr and "not executable" not in checked.stderr


def test_all_ways_of_running_it_use_the_script() -> None:
    image = (DEPLOY / "Containerfile").read_text()
    assert "RUN /src/deploy/install.sh /opt/panda-mdp /data" in image
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert compose["services"]["panda"]["build"]["dockerfile"] == "deploy/Containerfile"
    assert set(compose["services"]) == {"database", "panda", "proxy"}


def script(name: str, folder: Path) -> Path:
    """A script as it is installed, with this interpreter."""
    path = folder / name
    (folder / "bin").mkdir(exist_ok=True)
    if not (folder / "bin" / "python").exists():
        (folder / "bin" / "python").symlink_to(sys.executable)
    path.write_text((DEPLOY / f"{name}.sh").read_text().replace("@PREFIX@", str(folder)))
    path.chmod(0o755)
    return path


def exported(client: httpx.Client) -> tuple[int, int, list[str]]:
    """How many reports there are and are counted, and the tables."""
    lines = client.get("/v1/deployments/main/reports").text.splitlines()
    counted = client.get("/v1/deployments/main/counts").json()["reports"]
    tables = [entry["sha256"] for entry in client.get("/v1/tables").json()["tables"]]
    return len(lines), counted, tables


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_of_a_running_server_is_restored(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    postgres: Postgres | None = None
    if kind == "postgresql":
        postgres = request.getfixturevalue("postgres")
        database, target = postgres.database(), postgres.database()
    else:
        database, target = str(tmp_path / "panda.db"), str(tmp_path / "restored.db")
    path = f"{postgres.bin if postgres else ''}:{os.environ['PATH']}"
    backup, restore = script("backup", tmp_path), script("restore", tmp_path)
    running = Running(database, tmp_path).start()
    try:
        publish(running.admin, small_table(small_domain()), "city", tmp_path)
        wanted = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}}
        running.admin.post("/v1/deployments", json=wanted | {"reports_per_period": 100})
        (reporter,) = running.reporters(1)
        body = {"id": new_id(), "output": 5}
        address = "/v1/deployments/main/reports"
        assert reporter.post(address, json=body).status_code == 201
        key, copy = tmp_path / "operator.key", tmp_path / "copy"
        made = shell(backup, key, copy, PANDA_MDP_DATABASE=database, PATH=path)
        assert made.returncode == 0, made.stderr
        before = exported(running.admin)
        # Reported after the backup, and lost with the machine.
        assert reporter.post(address, json={"id": new_id(), "output": 10}).status_code == 201
        token = reporter.headers["authorization"]
        admin = running.admin_token
    finally:
        running.kill()
    key.unlink()
    done = shell(restore, copy, key, PANDA_MDP_DATABASE=target, PATH=path)
    assert done.returncode == 0, done.stderr
    again = Running(target, tmp_path).start()
    try:
        again.admin_token = admin
        assert exported(again.admin) == before == (1, 1, before[2])
        assert again.client().get("/readyz").status_code == 200
        # What was acknowledged before the backup is known; tokens work as before.
        sent = again.client().post(address, json=body, headers={"authorization": token})
        assert sent.status_code == 200
    finally:
        again.stop()


def test_a_backup_is_not_restored_beside_the_log_of_a_lost_database(tmp_path: Path) -> None:
    """SQLite would write the old log into the restored file, which is then neither of the two."""
    database, key, copy = tmp_path / "panda.db", tmp_path / "operator.key", tmp_path / "copy"
    backup, restore = script("backup", tmp_path), script("restore", tmp_path)
    running = Running(str(database), tmp_path).start()
    try:
        made = shell(backup, key, copy, PANDA_MDP_DATABASE=str(database))
        assert made.returncode == 0, made.stderr
        running.reporters(200)
    finally:
        running.kill()
    database.rename(tmp_path / "lost.db")
    strays = [Path(f"{database}{suffix}") for suffix in ("-wal", "-shm")]
    assert all(stray.exists() for stray in strays)
    refused = shell(restore, copy, key, PANDA_MDP_DATABASE=str(database))
    assert refused.returncode == 1 and not database.exists()
    assert "move the old database aside together with its -wal" in refused.stderr
    for stray in strays:
        stray.unlink()
    done = shell(restore, copy, key, PANDA_MDP_DATABASE=str(database))
    assert done.returncode == 0, done.stderr
    again = Running(str(database), tmp_path).start()
    again.admin_token = running.admin_token
    try:
        assert again.admin.get("/v1/tokens").json()["total"] == 1
    finally:
        again.stop()


def test_a_database_that_is_not_there_is_not_backed_up(tmp_path: Path) -> None:
    (tmp_path / "operator.key").write_text("key")
    copy, missing = tmp_path / "copy", tmp_path / "none.db"
    found = shell(
        script("backup", tmp_path),
        tmp_path / "operator.key",
        copy,
        PANDA_MDP_DATABASE=str(missing),
    )
    assert found.returncode == 1 and "there is no database to back up" in found.stderr
    assert not copy.exists() and not missing.exists()


def test_a_backup_that_is_no_whole_database_is_not_restored(tmp_path: Path) -> None:
    folder, target = tmp_path / "copy", tmp_path / "new.db"
    folder.mkdir()
    (folder / "operator.key").write_bytes(b"y")
    with Store.create(str(tmp_path / "whole.db")):
        pass
    whole = (tmp_path / "whole.db").read_bytes()
    (folder / "database").write_bytes(whole[: len(whole) // 2])
    (folder / "SHA256SUMS").write_text(
        "".join(
            f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
            for name in ("database", "operator.key")
        )
    )
    found = shell(
        script("restore", tmp_path), folder, tmp_path / "k", PANDA_MDP_DATABASE=str(target)
    )
    assert found.returncode != 0 and not target.exists() and not (tmp_path / "k").exists()


def test_a_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    (folder / "database").write_bytes(b"x")
    (folder / "operator.key").write_bytes(b"y")
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  database\n{'0' * 64}  operator.key\n")
    target = tmp_path / "new.db"
    found = shell(
        script("restore", tmp_path), folder, tmp_path / "k", PANDA_MDP_DATABASE=str(target)
    )
    assert found.returncode != 0 and not target.exists()

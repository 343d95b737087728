"""The script of deploy/: an installation in a folder of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import panda_mdp as pm
from panda_mdp.protocol.server.gate import Metrics
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.writer import ReportWriter

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
        timeout=600,
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


def test_rules_and_dashboard_ask_for_metrics_that_there_are(tmp_path: Path) -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    asked += [target["expr"] for panel in panels for target in panel["targets"]]
    assert len({panel["id"] for panel in panels}) == len(panels)
    with Store.create(str(tmp_path / "panda.db")) as store:
        metrics = Metrics(ReportWriter(store), lambda: True)
        metrics.count("POST", "/v1/deployments/{name}/reports", 429, 0.1, "rate_limited")
        shown = set(re.findall(r"^(\w+)", metrics.text().decode(), re.M))
    promtool = os.environ.get("PROMTOOL", "") or shutil.which("promtool")
    if promtool:
        checked = shell(promtool, "check", "rules", DEPLOY / "alerts.yaml")
        assert checked.returncode == 0 and "7 rules found" in checked.stdout, checked.stderr
    names = {name for text in asked for name in re.findall(r"\b(?:panda_mdp|process)_\w+", text)}
    assert names <= shown and len(asked) == 16


MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: str(manifest["kind"]))
def test_manifests_keep_the_schemas(manifest: dict[str, Any], version: str) -> None:
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not here")
    checker.validate(manifest, version, strict=True)


def test_the_manifest_runs_the_image_as_it_is_built() -> None:
    image = (DEPLOY / "Containerfile").read_text()
    service, server, ingress = MANIFESTS
    pod = server["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["image"] == f"panda-mdp:{pm.__version__}"
    assert f"USER {pod['securityContext']['runAsUser']}\n" in image
    assert f"EXPOSE {container['ports'][0]['containerPort']}\n" in image
    assert container["args"][:2] == json.loads(image.split("CMD ")[-1])
    assert f"VOLUME {container['volumeMounts'][0]['mountPath']}\n" in image
    assert service["spec"]["selector"] == server["spec"]["template"]["metadata"]["labels"]
    [rule] = ingress["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == service["metadata"]["name"]
    assert server["spec"]["replicas"] == 1, "SQLite has one server"


def test_all_ways_of_running_it_use_the_script() -> None:
    image = (DEPLOY / "Containerfile").read_text()
    assert "RUN /src/deploy/install.sh /opt/panda-mdp /data" in image
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert compose["services"]["panda"]["build"]["dockerfile"] == "deploy/Containerfile"
    assert set(compose["services"]) == {"database", "panda", "proxy"}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="mounting needs root")
def test_loops_are_compiled_where_nothing_may_be_written() -> None:
    """As under a unit with ProtectSystem and ProtectHome, where no table could be published."""
    closed = f"mount --bind {ROOT}/src {ROOT}/src && mount -o remount,ro,bind {ROOT}/src"
    loops = "import panda_mdp.compute.numba.audit"
    run = f'{closed} && HOME={ROOT}/src exec env -u NUMBA_CACHE_DIR {sys.executable} -c "{loops}"'
    if (
        shutil.which("unshare") is None
        or shell("unshare", "--mount", "sh", "-c", closed).returncode
    ):
        pytest.skip("this system lets nobody mount")
    found = shell("unshare", "--mount", "sh", "-c", run, PYTHONPATH=f"{ROOT}/src")
    assert found.returncode == 0, found.stderr[-2_000:]

"""``api`` and ``mcp``: what they refuse before they serve, and what they say where their packages are missing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from mlsysim.cli import servers
from mlsysim.errors import InputError


@pytest.mark.parametrize(("command", "extra"), [(servers.api, "api"), (servers.mcp, "mcp")])
def test_without_the_extra_the_sentence_says_what_to_install(monkeypatch, command, extra):
    monkeypatch.setattr(servers, "find_spec", lambda name: None)
    with pytest.raises(InputError) as error:
        command()
    assert f"pip install '.[{extra}]'" in str(error.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.com"])
def test_other_machines_are_let_in_on_purpose_only(host):
    pytest.importorskip("uvicorn")
    with pytest.raises(InputError, match="--allow-remote"):
        servers.api(host=host)


def test_limits_are_checked_before_serving():
    pytest.importorskip("uvicorn")
    with pytest.raises(InputError, match="timeout"):
        servers.api(timeout=-1.0)


def test_a_port_that_cannot_be_had_is_said_before_anything_is_ready(capsys):
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            InputError, match=f"port {port} of 127.0.0.1: another program has it.* --port {port % 65535 + 1}"
        ):
            servers.api(port=port)
    with pytest.raises(InputError, match="no address of this machine"):
        servers.api(host="192.0.2.1", allow_remote=True)
    with pytest.raises(InputError, match="machine of that name"):
        servers.api(host="nobody.invalid", allow_remote=True)
    assert "ready" not in capsys.readouterr().err


def test_the_default_is_loopback_and_an_interrupt_ends_it_with_its_workers():
    pytest.importorskip("uvicorn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlsysim", "api", "--port", str(port), "--workers", "1"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(3000):
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                    assert json.load(answer)["status"] == "ok"
                break
            except OSError:
                assert server.poll() is None
                time.sleep(0.2)
        body = json.dumps({"number": 2}).encode()
        request = urllib.request.Request(f"{address}/v1/walls", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            assert json.load(answer)["name"] == "Memory"
        if os.path.exists("/proc/net/tcp"):
            bound = [
                line.split()[1]
                for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
                if line.split()[3] == "0A"
            ]
            assert f"0100007F:{port:04X}" in bound and f"00000000:{port:04X}" not in bound
    finally:
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=600)
    assert f"http://127.0.0.1:{port}" in said
    assert "Traceback" not in said

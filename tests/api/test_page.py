"""The page at ``/``: what it is made of, and what it may load. What it does is tested in a browser."""

from __future__ import annotations

import re

import pytest


@pytest.mark.parametrize("url", ["/", "/docs"])
def test_the_page_may_load_its_own_files_alone(client, url):
    answer = client.get(url)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "connect")} == {"'self'"}
    assert "<style" not in answer.text and not re.search(r"\son\w+=|style=|<script>", answer.text)
    loaded = re.findall(r'(?:href|src)="([^"#]+)"', answer.text)
    for address in loaded:
        if address != "data:,":
            assert client.get(f"/{address}").status_code == 200, address
    assert {"docs/page.js", "docs/page.css"} <= set(loaded)


@pytest.mark.parametrize("name", ["page.js", "code.js", "page.css", "report.css"])
def test_its_files_name_no_other_host_and_make_no_markup(client, name):
    text = client.get(f"/docs/{name}").text
    assert not re.search(r"https?://", text)
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)


def test_other_files_of_the_folder_are_not_served(client):
    for address in ("/docs/index.html", "/docs/../openapi.py", "/docs/", "/page/page.js"):
        assert client.get(address).status_code == 404

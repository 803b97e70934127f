"""GET /compile/{id}/report.html on a real server: one file, everything in it, nothing from elsewhere."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser

import pytest


class Page(HTMLParser):
    """Headings, cells of tables, and what the page would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def compilation(server, model_file):
    return server.compile(model_file("mlp"), {"passes": "generic", "verify": "every_step"}).json()


@pytest.fixture(scope="module")
def page(server, compilation):
    answer = server.http.get(f"/compile/{compilation['id']}/report.html")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.text


def test_it_has_every_step_with_its_ir_and_its_difference(page, compilation):
    for step in compilation["steps"] + compilation["results"]:
        assert f'id="step-{step["index"]}"' in page
    plain = re.sub(r"<[^>]+>", "", page)
    assert "R.matmul(" in plain
    assert "What differs from the step before" in plain
    assert "define" in plain  # LLVM
    assert compilation["model"]["sha256"] in plain
    assert compilation["toolchain"]["tvm"] in plain


def test_it_loads_nothing_and_runs_nothing(page):
    found = Page(page)
    assert not found.open
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "form"}
    assert all(not attributes.get("src") for _, attributes in found.tags)
    links = [attributes["href"] for tag, attributes in found.tags if tag == "a"]
    assert all(link.startswith("#") for link in links)
    assert "url(" not in page


def test_headings_and_tables_can_be_read_by_a_screen_reader(page):
    found = Page(page)
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert sum(tag == "table" for tag, _ in found.tags) == sum(tag == "caption" for tag, _ in found.tags)
    assert all(attributes.get("scope") for tag, attributes in found.tags if tag == "th")


def test_a_profile_is_measured_on_request(server, compilation, page):
    assert 'id="profile"' not in page
    measured = server.http.get(f"/compile/{compilation['id']}/report.html", params={"profile": True}).text
    assert "Kernels by time" in measured


def test_a_failure_tells_its_problem_and_what_went_before(server, model_file):
    problem = server.compile(model_file("mlp"), {"passes": "generic", "target": {"cpu": "no-such-cpu"}}).json()
    answer = server.http.get(f"/compile/{problem['compilation']}/report.html", params={"profile": True})
    assert answer.status_code == 200
    assert "The build failed" in answer.text
    assert "no-such-cpu" in answer.text
    assert "could not be measured" in answer.text


def test_bad_questions_are_refused(server, compilation):
    assert server.http.get("/compile/nonsense/report.html").status_code == 404
    answer = server.http.get(f"/compile/{compilation['id']}/report.html", params={"profil": "yes"})
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/unknown-field")

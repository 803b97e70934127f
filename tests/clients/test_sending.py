"""relaxd.sending, driven by hand: when a request is sent again, and what an answer becomes. No network, no sleep."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from relaxd.errors import AnswerTimeout, Overloaded, ProblemError, ServerUnreachable, UnexpectedAnswer
from relaxd.sending import ATTEMPTS, LONGEST_PAUSE_S, Pause, Request, read_answer, send

from .fake_relaxd import problem_response

GET = Request("GET", "/compile/c1")
POST = Request("POST", "/infer", body=b"{}")


def drive(request: Request, *happenings: Any) -> tuple[list[Request | Pause], httpx.Response]:
    """What the Flow asks for, when its requests are answered (or fail) with the happenings in turn; and its result."""
    flow, wishes, coming = send(request), [], list(happenings)
    sent = httpx.Request(request.method, f"http://server:1{request.path}")
    try:
        wish = next(flow)
        while True:
            wishes.append(wish)
            if isinstance(wish, Pause):
                wish = next(flow)
                continue
            happening = coming.pop(0)
            happening.request = sent
            wish = flow.throw(happening) if isinstance(happening, Exception) else flow.send(happening)
    except StopIteration as end:
        assert not coming
        return wishes, end.value


def overloaded(retry_after: str | None = "2") -> httpx.Response:
    return problem_response("overloaded", 503, {} if retry_after is None else {"retry-after": retry_after})


@pytest.mark.parametrize("request_", [GET, POST])
def test_a_503_with_retry_after_is_sent_again_after_just_that_time(request_: Request) -> None:
    wishes, answer = drive(request_, overloaded("2"), httpx.Response(200))
    assert wishes == [request_, Pause(2.0), request_]
    assert answer.status_code == 200


def test_it_stops_after_a_bounded_number_of_attempts_with_the_server_s_problem() -> None:
    answers = [overloaded() for _ in range(ATTEMPTS)]
    with pytest.raises(Overloaded):
        drive(POST, *answers)


@pytest.mark.parametrize("retry_after", [None, str(int(LONGEST_PAUSE_S) + 1), "Wed, 21 Oct 2026 07:28:00 GMT", "-1"])
def test_a_503_without_a_short_retry_after_is_raised_at_once(retry_after: str | None) -> None:
    with pytest.raises(Overloaded):
        drive(GET, overloaded(retry_after))


def test_retry_after_on_another_status_is_no_reason_to_send_again() -> None:
    wishes, _ = drive(POST, httpx.Response(202, headers={"retry-after": "1"}))
    assert wishes == [POST]


def test_a_get_whose_connection_broke_is_sent_again_after_growing_pauses() -> None:
    wishes, _ = drive(GET, httpx.ReadError("reset"), httpx.ConnectError("refused"), httpx.Response(200))
    pauses = [wish.seconds for wish in wishes if isinstance(wish, Pause)]
    assert len(pauses) == 2
    assert 0 < pauses[0] < pauses[1] < 2


def test_a_post_whose_connection_broke_is_not_sent_again() -> None:
    with pytest.raises(ServerUnreachable):
        drive(POST, httpx.ReadError("reset"))


def test_a_get_gives_up_on_the_connection_in_the_end() -> None:
    with pytest.raises(ServerUnreachable):
        drive(GET, *[httpx.ConnectError("refused") for _ in range(ATTEMPTS)])


def test_an_unreachable_server_is_reported_with_the_url_and_what_to_do() -> None:
    with pytest.raises(ServerUnreachable) as caught:
        drive(POST, httpx.ConnectError("Connection refused"))
    text = str(caught.value)
    assert "POST http://server:1/infer: Connection refused" in text
    assert "python -m service serve" in text


def test_a_timeout_is_not_waited_for_again_and_says_which_argument_to_change() -> None:
    with pytest.raises(AnswerTimeout, match="`timeout`"):
        drive(GET, httpx.ReadTimeout("timed out"))


def test_a_connection_that_times_out_is_an_unreachable_server() -> None:
    with pytest.raises(ServerUnreachable):
        drive(POST, httpx.ConnectTimeout("timed out"))


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(502, text="<h1>Bad gateway</h1>"),
        httpx.Response(404, json={"detail": "Not Found"}),
        httpx.Response(302, headers={"location": "/login"}),
        httpx.Response(500, headers={"content-type": "application/problem+json"}, text="[]"),
        httpx.Response(500, headers={"content-type": "application/problem+json"}, text="{"),
    ],
)
def test_an_error_that_is_no_problem_document_is_an_unexpected_answer(answer: httpx.Response) -> None:
    with pytest.raises(UnexpectedAnswer, match=f"answered {answer.status_code}"):
        drive(GET, answer)


def test_a_problem_document_with_a_charset_is_still_a_problem() -> None:
    headers = {"content-type": "application/problem+json; charset=utf-8"}
    with pytest.raises(ProblemError, match="teapot"):
        drive(GET, httpx.Response(418, headers=headers, json={"type": "/problems/teapot"}))


@pytest.mark.parametrize("body", ["not json", "[]", '{"other": 1}', "null"])
def test_a_success_of_another_shape_is_an_unexpected_answer_that_shows_the_body(body: str) -> None:
    answer = httpx.Response(200, text=body, request=httpx.Request("GET", "http://server:1/compile"))
    with pytest.raises(UnexpectedAnswer) as caught:
        read_answer(answer, lambda value: value["compilations"])
    assert "GET http://server:1/compile answered 200" in str(caught.value)
    assert repr(body) in str(caught.value)

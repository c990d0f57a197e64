"""Requests in the table: each is answered, whatever stands there."""

from __future__ import annotations

import json

import pytest

from canard_pipe.engine.database import Database
from canard_pipe.pipeline.requests import answer_open


def nobody(ids):
    assert not ids


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("cancel", "[]", "JSON object"),
        ("cancel", "{", "property name"),
        ("retry", '{"keys": 7}', "keys"),
        ("retry", '{"keys": "A"}', "keys"),
        ("cancel", '{"keys": [null]}', "keys"),
        ("dance", "{}", "'dance'"),
        ("cancel", '{"keys": ["Z"]}', "'Z'"),
    ],
)
def test_a_request_that_cannot_be_met_is_answered_and_not_asked_again(tmp_path, kind, text, said):
    """Anybody's SQL may write there; an error that gets out would end the run's maintenance."""
    with Database(None, root=tmp_path) as database:
        now_us = database.clock.now_us()
        database.store.sql(
            "INSERT INTO canard_absurd.requests (request_id, kind, arguments, asked_at) "
            f"VALUES ('r', '{kind}', '{text}', make_timestamp({now_us}))"
        )
        (sentence,) = answer_open(database, "plain", nobody)
        assert said in sentence
        answer = json.loads(database.query("request_answer", request_id="r")[0][0])
        assert answer["ok"] is False
        assert answer_open(database, "plain", nobody) == []

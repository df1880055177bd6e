"""The service of the user guide answers requests."""

import asyncio
import json
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

import manylabel as ml

pytestmark = pytest.mark.skipif(
    not find_spec("fastapi"), reason="the service of the user guide needs the package fastapi"
)

SERVICE = Path(__file__).parents[2] / "python/docs/guide/service.py"


@pytest.fixture(scope="module")
def tagger():
    texts, labels = ["a cat", "tax law", "my dog", "the law"], [["pets"], ["law", "tax"], ["pets"], ["law"]]
    return ml.TextTagger(ml.DiSMECClassifier(random_state=0)).fit(texts, labels)


@pytest.fixture(scope="module")
def app(tagger, tmp_path_factory):
    path = tmp_path_factory.mktemp("service") / "tagger.safetensors"
    tagger.save(path)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TAGGER", str(path))
        return runpy.run_path(str(SERVICE))["app"]


def ask(app, question):
    """The status and the content of the answer to a question, asked as a server does."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/suggest",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": json.dumps(question).encode()}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(body)


def test_suggestions_are_those_of_the_tagger(app, tagger):
    wanted = [[name, pytest.approx(score)] for name, score in tagger.suggest("the täx law", k=2)]
    assert ask(app, {"text": "the täx law", "k": 2}) == (200, wanted)
    assert len(ask(app, {"text": "the law"})[1]) == 3


@pytest.mark.parametrize("question", [{}, {"text": "law", "k": 0}, {"text": "law", "k": "many"}])
def test_bad_requests_are_refused(app, question):
    status, _ = ask(app, question)
    assert status == 422

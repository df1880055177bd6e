"""Suggest labels of texts over HTTP, with several processes that share one model. Start it with

TAGGER=tagger.safetensors gunicorn service:app --preload --workers 8 --worker-class asgi

and ask it with

curl localhost:8000/suggest --json '{"text": "How taxes became law", "k": 3}'
"""

import gc
import os
from typing import Annotated

from fastapi import Body, FastAPI

import manylabel as ml

tagger = ml.load(os.environ["TAGGER"]).prepare()
app = FastAPI()

# The garbage collector of a worker leaves alone what exists now, so that it does not copy shared pages.
gc.freeze()


# A short text takes less time than the way to another thread and back, so this function is `async`.
@app.post("/suggest")
async def suggest(
    text: Annotated[str, Body()], k: Annotated[int, Body(ge=1, le=100)] = 5
) -> list[tuple[str, float]]:
    return tagger.suggest(text, k=k)

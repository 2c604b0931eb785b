"""How much of what is nearest the vector index finds, against comparing every stored vector."""

import numpy as np

from recall_server.application import Application
from recall_server.bench.texts import Texts
from recall_server.domain.namespace import Namespace
from recall_server.services.search.search import POOL_MIN
from recall_server.storage.index.codes import Floats

QUESTIONS = 100
# What is nearer by less is equally near: beyond six places is noise.
NOISE = 1e-6
NEAREST = 10
# Vectors that are read at a time: 5 MB of them.
PAGE = 5_000


async def recall_of_vectors(built: Application, namespace: Namespace, seed: int) -> float:
    """recall@10, the mean over `QUESTIONS` questions: of the ten nearest, how many are among the
    nearest that a search looks at. One that is as near as the tenth counts as one of them.
    """
    assert built.embedder is not None
    texts = Texts(seed)
    asked = await built.embedder.embed([texts.question() for _ in range(QUESTIONS)])
    model, dimensions = built.embedder.model, built.embedder.dimensions
    tenth = await _tenth(built, namespace, model, asked)
    found = 0
    async with built.store.transaction(namespace, write=False) as tx:
        known = await tx.words.statistics()
        documents = await tx.words.documents(known)
        vectors = await tx.vectors.of_search(model, dimensions, known)
        for query, least in zip(asked, tenth, strict=True):
            pool = await vectors.nearest(query, documents.findable, POOL_MIN)
            cosines = np.sort(await vectors.cosines(query, pool))[-NEAREST:]
            found += int(np.count_nonzero(cosines > least - NOISE))
    return found / (QUESTIONS * NEAREST)


async def _tenth(
    built: Application, namespace: Namespace, model: str, asked: Floats
) -> list[float]:
    """For each question the cosine of the tenth of all vectors."""
    best = np.full((len(asked), NEAREST), -1.0)
    async with built.store.transaction(namespace, write=False) as tx:
        (last,) = await tx.handle.fetch("last_slot", model=model)
        for start in range(1, last["slot"] + 1, PAGE):
            rows = await tx.handle.fetch(
                "vectors_at", model=model, slots=list(range(start, start + PAGE))
            )
            vectors = np.frombuffer(b"".join(row["vector"] for row in rows), dtype="<f4")
            cosines = asked @ vectors.reshape(len(rows), -1).T
            both = np.concatenate([best, cosines], axis=1)
            best = -np.partition(-both, NEAREST - 1, axis=1)[:, :NEAREST]
    return [float(cosine) for cosine in best.min(axis=1)]

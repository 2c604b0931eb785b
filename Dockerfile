# The wheel is built where the sources are, and runs where they are not.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE agent-card.json ./
COPY migrations migrations
COPY recall_server recall_server
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && python -m venv /opt/recall \
 && /opt/recall/bin/pip install --no-cache-dir "$(ls /wheels/*.whl)[anthropic,openai,postgres,tracing]"
# A model of sentence-transformers to take along, such as BAAI/bge-small-en-v1.5; without it no torch.
ARG MODEL=
RUN mkdir -p /opt/recall/models && if [ -n "$MODEL" ]; then \
  /opt/recall/bin/pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu "$(ls /wheels/*.whl)[embeddings]" \
  && /opt/recall/bin/python -c "import sys; from sentence_transformers import SentenceTransformer as Model; Model(sys.argv[1]).save('/opt/recall/models/' + sys.argv[1])" "$MODEL"; fi

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin recall \
 && install -d -o recall -g recall -m 700 /data
COPY --from=build /opt/recall /opt/recall
# All by the environment: RECALL_DB_URL takes the place of the SQLite file. What is run beside the
# server has the same: docker exec NAME recall create-token acme
ENV PATH=/opt/recall/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 RECALL_HOST=0.0.0.0 RECALL_ALLOW_PUBLIC=true RECALL_DB_PATH=/data/recall.db RECALL_KEY_FILE=/data/recall.key RECALL_PROBE_PORT=8001
USER recall
WORKDIR /data
VOLUME /data
EXPOSE 8000
# Of a server and of a worker.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8001, timeout=3); c.request('GET', '/health'); assert c.getresponse().status == 200"]
# Plain HTTP: publish the port to a TLS proxy only, and name its host in RECALL_ALLOWED_HOSTS.
ENTRYPOINT ["recall"]
CMD ["serve"]

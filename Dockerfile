# The wheel is built where the sources are, and runs where they are not.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE agent-card.json ./
COPY migrations migrations
COPY recall_server recall_server
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && python -m venv /opt/recall \
 && /opt/recall/bin/pip install --no-cache-dir "$(ls /wheels/*.whl)[anthropic,openai,postgres]"

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin recall \
 && install -d -o recall -g recall -m 700 /data
COPY --from=build /opt/recall /opt/recall
# The path is here too, for what is run beside the server: docker exec NAME recall create-token acme
ENV PATH=/opt/recall/bin:$PATH PYTHONUNBUFFERED=1 RECALL_DB_PATH=/data/recall.db RECALL_KEY_FILE=/data/recall.key
USER recall
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8000, timeout=3); c.request('GET', '/health'); assert c.getresponse().status == 200"]
# Plain HTTP: publish the port to a TLS proxy only, and name its host in RECALL_ALLOWED_HOSTS.
ENTRYPOINT ["recall"]
CMD ["serve", "--host", "0.0.0.0", "--allow-public", "--db", "/data/recall.db"]

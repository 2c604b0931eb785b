"""Spans of OpenTelemetry: request, operation, extract, merge, embed, rank, commit and job. Without
the extra [tracing] and an address to send them to, they cost next to nothing. None holds a text.
"""

from collections.abc import Callable

from opentelemetry import trace

from recall_server.domain.errors import Invalid

tracer = trace.get_tracer("recall_server")


def send_spans(endpoint: str, version: str) -> Callable[[], None]:
    """Send the spans of this process to an OTLP endpoint over HTTP. Return a function that sends
    the rest of them at the end. Raises `Invalid` if the extra is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError:
        raise Invalid(
            "RECALL_OTLP_ENDPOINT is set and the packages for it are not installed. Run: "
            "pip install 'recall-server[tracing]'."
        ) from None
    resource = Resource.create({"service.name": "recall-server", "service.version": version})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    trace.set_tracer_provider(provider)
    return provider.shutdown

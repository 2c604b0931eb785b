"""Input and output: limits, streams, hostile text, pushes, errors."""

from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import (
    Argument,
    Body,
    Forgets,
    Instead,
    Never,
    Unwrapped,
    Value,
    Without,
)

BREAKAGES = (
    Breakage(
        "redirects-followed",
        "that a push follows no redirect",
        "recall_server.integrations.webhook:Webhook._sent_to",
        Body(
            "async with httpx2.AsyncClient(verify=False, follow_redirects=True) as client:\n"
            "    address = f'{target.scheme}://{address}:{target.port}{target.path}'\n"
            "    answer = await client.request(asked.method, address, content=asked.body)\n"
            "    return Answer(answer.status_code)"
        ),
        ("tests/integration/http/test_webhook.py::test_a_redirect_is_an_answer_and_not_an_order",),
    ),
    Breakage(
        "answers-of-any-length",
        "that a receiver is left that sends too much before its answer",
        "recall_server.integrations.webhook:HEAD_BYTES_MAX",
        Value("2**40"),
        (
            "tests/integration/http/test_webhook.py::test_a_receiver_cannot_occupy_the_loop_with_the_lines_of_its_answer[empty headers]",
        ),
    ),
    Breakage(
        "address-not-checked",
        "that a push goes to public addresses only",
        "recall_server.integrations.webhook:Webhook._addresses",
        Never("is_public"),
        (
            "tests/integration/http/test_webhook.py::test_no_address_that_is_not_public_may_be_reached",
        ),
    ),
    Breakage(
        "address-not-pinned",
        "that a push goes to the address that was checked",
        "recall_server.integrations.webhook:Webhook._sent_to",
        Argument("URL", "host", "target.name"),
        (
            "tests/integration/http/test_webhook.py::test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_reached",
        ),
    ),
    Breakage(
        "key-means-anything",
        "that an idempotency key belongs to one text",
        "recall_server.services.memory.ingest:Ingest.remember",
        Never("IdempotencyConflict"),
        (
            "tests/integration/memory/test_ingest.py::test_the_same_key_with_another_text_is_refused[sqlite]",
        ),
    ),
    Breakage(
        "quarantine-off",
        "that suspects are held back",
        "recall_server.services.memory.episodes:with_turns",
        Argument("suspects", 0, "[]"),
        (
            "tests/security/test_hostile_text.py::test_a_suspect_is_kept_but_neither_found_nor_made_a_memory_of[sqlite]",
        ),
    ),
    Breakage(
        "labels-not-screened",
        "that an order in a label holds the text back",
        "recall_server.services.memory.episodes:with_turns",
        Never("reasons"),
        (
            "tests/security/test_hostile_text.py::test_an_order_in_a_label_holds_the_text_back[sqlite-topic]",
        ),
    ),
    Breakage(
        "labels-not-masked",
        "that secrets in labels are overwritten",
        "recall_server.services.memory.episodes:Redaction.labels",
        Instead("parts", "parts"),
        (
            "tests/security/test_masking.py::test_no_string_of_a_call_is_kept_with_a_secret_in_it[sqlite]",
        ),
    ),
    Breakage(
        "orders-proposed",
        "that a proposal of a model is screened for orders",
        "recall_server.services.memory.episodes:_refusal",
        (Instead("orders", "[]"), Instead("suspicions", "()")),
        (
            "tests/security/test_hostile_text.py::test_a_model_that_obeys_gets_nothing_but_its_good_proposals[sqlite]",
        ),
    ),
    Breakage(
        "masking-off",
        "that secrets are masked",
        "recall_server.services.memory.episodes:Redaction.text",
        Body("return text"),
        (
            "tests/security/test_hostile_text.py::test_a_secret_is_written_over_before_anything_is_kept[sqlite]",
        ),
    ),
    Breakage(
        "output-as-it-is",
        "that characters that act or hide are escaped",
        "recall_server.api.presenters:compact",
        Unwrapped("plain_json"),
        ("tests/api/test_quarantine.py::test_what_leaves_is_exact_as_data_and_obeys_no_terminal",),
    ),
    Breakage(
        "rate-limit-off",
        "the limit of calls a minute",
        "recall_server.services.limits:SlidingWindow.take",
        Body("return"),
        ("tests/security/test_limits.py::test_a_token_may_make_so_many_calls_a_minute",),
    ),
    Breakage(
        "streams-outlive-tokens",
        "that a stream ends with its token",
        "recall_server.api.callers:Streams._look",
        Without("over", "set"),
        (
            "tests/security/test_streams.py::test_a_stream_ends_when_its_token_is_revoked_by_another_process[sqlite-JSONRPC]",
        ),
    ),
    Breakage(
        "body-limit-off",
        "the limit of a body that does not tell its length",
        "recall_server.api.request_validation:RequestBody._body",
        Never("size", "body_bytes_max"),
        (
            "tests/api/test_request_validation.py::test_a_chunked_body_is_refused_as_soon_as_it_is_too_large",
        ),
    ),
    Breakage(
        "names-twice",
        "that a name stands once in an object",
        "recall_server.domain.text.cleaning:unique_names",
        Never("ValueError"),
        ("tests/api/test_values.py::test_a_body_that_parsers_disagree_on_is_refused",),
    ),
    Breakage(
        "any-host",
        "that the server answers to its own name only",
        "recall_server.api.request_validation:RequestValidation._check_head",
        Forgets("hosts"),
        ("tests/api/test_auth.py::test_host_and_origin_must_be_known",),
    ),
    Breakage(
        "error-tells-cause",
        "that a fault inside tells nothing of its cause",
        "recall_server.api.operations.operation:Calls.perform",
        Argument("RecallError", 0, "f\"{original}: {__import__('sys').exc_info()[1]}\""),
        (
            "tests/api/test_faults.py::test_a_fault_inside_gives_a_reference_and_nothing_of_its_cause",
        ),
    ),
    Breakage(
        "handles-asked-for-without-end",
        "that a server without a free file handle does not occupy its event loop",
        "recall_server.server:Listener.accept",
        Without("_short", "errno"),
        (
            "tests/faults/test_disk.py::test_without_a_file_handle_to_spare_callers_wait_and_are_answered_when_there_is_one[sqlite]",
        ),
    ),
)

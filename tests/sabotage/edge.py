"""What comes in and what goes out: limits, streams, hostile text, pushes, errors."""

from tests.sabotage.breakage import Breakage

BREAKAGES = (
    Breakage(
        "redirects-followed",
        "that a push follows no redirect",
        "recall_server/integrations/http/webhook.py",
        "response = await self._opened().handle_async_request(request)",
        "client = httpx2.AsyncClient(transport=self._opened(), follow_redirects=True)\n"
        "        response = await client.send(request)",
        ("tests/providers/test_webhook.py::test_a_redirect_is_an_answer_and_not_an_order",),
    ),
    Breakage(
        "address-not-checked",
        "that a push goes to public addresses only",
        "recall_server/integrations/http/webhook.py",
        "if not all(map(is_public, found)):",
        "if not found:",
        ("tests/providers/test_webhook.py::test_no_address_that_is_not_public_may_be_reached",),
    ),
    Breakage(
        "address-not-pinned",
        "that a push goes to the address that was checked",
        "recall_server/integrations/http/webhook.py",
        "host=str(address),",
        "host=target.name,",
        (
            "tests/providers/test_webhook.py::test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_reached",
        ),
    ),
    Breakage(
        "key-means-anything",
        "that an idempotency key belongs to one text",
        "recall_server/services/memory/ingest.py",
        "if before.request_digest != digest:",
        "if not before.request_digest:",
        ("tests/services/test_ingest.py::test_the_same_key_with_another_text_is_refused[sqlite]",),
    ),
    Breakage(
        "quarantine-off",
        "that suspects are held back",
        "recall_server/services/memory/passages.py",
        "found = suspects(said)",
        "found = suspects([])",
        (
            "tests/security/test_hostile_text.py::test_a_suspect_is_kept_but_neither_found_nor_made_a_memory_of[sqlite]",
        ),
    ),
    Breakage(
        "orders-proposed",
        "that what a model proposes gives no orders",
        "recall_server/services/memory/passages.py",
        "return not orders(candidate.text) and not suspicions(said)",
        "return True",
        (
            "tests/security/test_hostile_text.py::test_a_model_that_obeys_gets_nothing_but_its_good_proposals[sqlite]",
        ),
    ),
    Breakage(
        "masking-off",
        "that secrets are masked",
        "recall_server/services/memory/redaction.py",
        "if self.redactor is None or not text:",
        "if self.redactor is None or text:",
        (
            "tests/security/test_hostile_text.py::test_a_secret_is_written_over_before_anything_is_kept[sqlite]",
        ),
    ),
    Breakage(
        "output-as-it-is",
        "that what acts or hides leaves as an escape",
        "recall_server/api/presenters.py",
        'return plain_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))',
        'return json.dumps(value, ensure_ascii=False, separators=(",", ":"))',
        (
            "tests/surface/test_quarantine.py::test_what_leaves_is_exact_as_data_and_obeys_no_terminal",
        ),
    ),
    Breakage(
        "rate-limit-off",
        "the limit of calls a minute",
        "recall_server/services/limits/rates.py",
        "if limit and not self._windows.take(key, limit):",
        "if limit and not self._windows.take(key, limit) and not key:",
        ("tests/security/test_limits.py::test_a_token_may_make_so_many_calls_a_minute",),
    ),
    Breakage(
        "streams-outlive-tokens",
        "that a stream ends with its token",
        "recall_server/api/middleware/streams.py",
        '                    log.info("streams_ended", accessor=token.accessor)\n'
        "                    over.set()\n",
        '                    log.info("streams_ended", accessor=token.accessor)\n',
        (
            "tests/security/test_streams.py::test_a_stream_ends_when_its_token_is_revoked_by_another_process[sqlite-JSONRPC]",
        ),
    ),
    Breakage(
        "body-limit-off",
        "the limit of a body that does not tell its length",
        "recall_server/api/middleware/request_validation.py",
        "if size > self._body_bytes_max:",
        "if size < 0:",
        ("tests/surface/test_edge.py::test_a_chunked_body_is_refused_as_soon_as_it_is_too_large",),
    ),
    Breakage(
        "names-twice",
        "that a name stands once in an object",
        "recall_server/api/middleware/request_validation.py",
        "if len(found) != len(pairs):",
        "if len(found) > len(pairs):",
        ("tests/surface/test_values.py::test_a_body_that_parsers_disagree_on_is_refused",),
    ),
    Breakage(
        "any-host",
        "that the server answers to its own name only",
        "recall_server/api/middleware/request_validation.py",
        'if match is None or match[1].strip("[]") not in self._hosts:',
        "if match is None:",
        ("tests/surface/test_auth.py::test_host_and_origin_must_be_known",),
    ),
    Breakage(
        "error-tells-cause",
        "that a fault inside tells nothing of its cause",
        "recall_server/api/perform.py",
        """        except Exception:
            log.exception("operation_failed", operation=operation, request_id=entry.request_id)
            error = RecallError(
                f"Something went wrong here. Ask the operator, naming {entry.request_id}."
            )
""",
        """        except Exception as cause:
            log.exception("operation_failed", operation=operation, request_id=entry.request_id)
            error = RecallError(
                f"Something went wrong here: {cause}. Ask the operator, naming {entry.request_id}."
            )
""",
        (
            "tests/surface/test_faults.py::test_a_fault_inside_gives_a_reference_and_nothing_of_its_cause",
        ),
    ),
    Breakage(
        "handles-asked-for-without-end",
        "that a server without a file handle to spare lets go of its event loop",
        "recall_server/api/listener.py",
        "            self._short = error.errno in _SHORT\n",
        "",
        (
            "tests/faults/test_disk.py::test_without_a_file_handle_to_spare_callers_wait_and_are_answered_when_there_is_one[sqlite]",
        ),
    ),
)

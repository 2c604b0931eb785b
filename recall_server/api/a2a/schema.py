"""The input of the skill, its questions and the answers that it takes: published as JSON
schemas in the agent card, and with every question.
"""

from typing import Any

from recall_server.api.a2a.card import CONTRADICTIONS, SKILL
from recall_server.domain.plan import Choice, Policy
from recall_server.domain.task import Expiry, Mode

Json = dict[str, Any]

_CHOICES = [str(choice) for choice in Choice]

INPUT_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "mode": {"enum": [str(mode) for mode in Mode]},
        "text": {"type": "string"},
        "topic": {"type": "string"},
        "container": {"type": "string"},
        "policy": {"enum": [str(policy) for policy in Policy]},
        "similarity_threshold": {"type": "number", "minimum": 0, "maximum": 1},
        "dry_run": {"type": "boolean"},
        "plan_id": {"type": "string"},
        "expires_in": {"type": "number", "minimum": 1},
        "on_expiry": {"enum": [str(choice) for choice in Expiry]},
        "session_id": {"type": "string"},
        "agent_id": {"type": "string"},
    },
    "additionalProperties": False,
}

RESPONSE_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "resolutions": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "choice": {"enum": _CHOICES},
                    "text": {"type": "string"},
                },
                "required": ["id", "choice"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["resolutions"],
    "additionalProperties": False,
}

_SIDE: Json = {
    "type": "object",
    "properties": {
        "memory_id": {"type": "string"},
        "text": {"type": "string"},
        "value": {"type": ["string", "null"]},
        "negated": {"type": "boolean"},
        "source": {"type": "object"},
        "said_at": {"type": "string"},
        "valid_from": {"type": "string"},
        "confidence": {"type": "number"},
        "strength": {"type": "number"},
    },
}

QUESTION_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "entity": {"type": "string"},
        "attribute": {"type": "string"},
        "existing": {"type": "array", "items": _SIDE},
        "new": _SIDE,
        "reason": {"type": "string"},
        "choices": {"type": "array", "items": {"enum": _CHOICES}},
        "recommended": {"enum": _CHOICES},
    },
}

EXTENSIONS: dict[str, Json] = {
    CONTRADICTIONS: {
        "skill": SKILL,
        "input_schema": INPUT_SCHEMA,
        "question_schema": QUESTION_SCHEMA,
        "response_schema": RESPONSE_SCHEMA,
    }
}
"""The parameters that the card publishes for each extension."""

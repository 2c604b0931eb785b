"""Variables that look like settings and are none."""

import os
from dataclasses import dataclass
from difflib import get_close_matches

from dotenv import dotenv_values

from recall_server.config import ENV_FILE, Settings, is_secret, variable_of

# Variables of the examples for clients and of the test suite, which are no settings.
_OF_CLIENTS = {"RECALL_URL", "RECALL_TOKEN", "RECALL_TOKEN_FILE"}
_OF_TESTS = "RECALL_TEST_"


@dataclass(frozen=True)
class UnknownSetting:
    """A variable that looks like a setting and is none; `meant` is the setting most like it."""

    name: str
    meant: str | None


def unknown_settings() -> list[UnknownSetting]:
    """The variables of the environment and of `.env` that begin with RECALL_ and change nothing."""
    fields = Settings.model_fields.items()
    variables = {variable_of(name, field) for name, field in fields}
    files = {f"{variable_of(name, field)}_FILE" for name, field in fields if is_secret(field)}
    known = _OF_CLIENTS | variables | files
    names = sorted(
        name
        for name in {**os.environ, **dotenv_values(ENV_FILE)}
        if name.upper().startswith("RECALL_")
        and name.upper() not in known
        and not name.upper().startswith(_OF_TESTS)
    )
    return [
        UnknownSetting(name, next(iter(get_close_matches(name.upper(), known, n=1)), None))
        for name in names
    ]

"""Finds variables that look like settings but are not."""

import os
from dataclasses import dataclass
from difflib import get_close_matches

from dotenv import dotenv_values

from recall_server.config import ENV_FILE, Settings, is_secret, variable_of

# Variables for clients and of the test suite, which are no settings of the server.
_OF_CLIENTS = {"RECALL_URL", "RECALL_TOKEN", "RECALL_TOKEN_FILE"}
_OF_TESTS = "RECALL_TEST_"


@dataclass(frozen=True)
class UnknownSetting:
    """A variable that looks like a setting but is not; `meant` is the most similar setting."""

    name: str
    meant: str | None


def unknown_settings() -> list[UnknownSetting]:
    """Return the variables of the environment and of `.env` that begin with RECALL_ but have no
    effect.
    """
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

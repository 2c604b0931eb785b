"""Secrets of the settings in files, as orchestrators hand them over: `NAME_FILE` names one."""

from pathlib import Path
from typing import Any

from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource

from recall_server.domain.errors import Invalid


class SecretFiles(PydanticBaseSettingsSource):
    """Secrets from the files that `NAME_FILE` names, in the variables of another source. Raises
    `Invalid` where a file cannot be read, or the secret stands there too.
    """

    def __init__(self, settings_cls: type[BaseSettings], source: EnvSettingsSource) -> None:
        super().__init__(settings_cls)
        self._variables = source.env_vars

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        variable = variable_of(field_name, field)
        path = self._variables.get(f"{variable}_FILE".lower())
        if not path or not is_secret(field):
            return None, field_name, False
        if self._variables.get(variable.lower()):
            raise Invalid(f"{variable} and {variable}_FILE are both set. Keep one of them.")
        try:
            return Path(path).read_text("utf-8").strip(), field_name, False
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise Invalid(f"{variable}_FILE: {path} cannot be read ({why}).") from None

    def __call__(self) -> dict[str, Any]:
        found = {
            name: self.get_field_value(field, name)[0]
            for name, field in self.settings_cls.model_fields.items()
        }
        return {name: value for name, value in found.items() if value is not None}


def variable_of(name: str, field: FieldInfo) -> str:
    """The environment variable of a setting."""
    alias = field.validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else f"RECALL_{name.upper()}"


def is_secret(field: FieldInfo) -> bool:
    return "SecretStr" in str(field.annotation)

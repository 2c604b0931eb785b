"""Every setting, read once: of the command line, else the environment, `.env`, these defaults."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AliasChoices, Field, SecretStr, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from recall_server.config_models import ModelSettings, ThresholdSettings
from recall_server.domain.errors import Invalid

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
ENV_FILE = Path(".env")
"""Only the command line reads this file, from the folder that it is run in."""

# A path is for a proxy before the server; no credentials, query or fragment.
_ADDRESS = re.compile(
    r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?(/[a-z0-9._~/-]*)?",
    re.ASCII | re.IGNORECASE,
)


_OF_URL = frozenset({"recall_db_url", "recall_db_url_file"})


class Access(BaseSettings):
    """The server that the commands for people ask in place of a database, and the token for it."""

    model_config = SettingsConfigDict(env_prefix="RECALL_", extra="ignore")

    url: str | None = Field(
        default=None, validation_alias=AliasChoices("RECALL_URL", "ENGRAM_SERVER_URL")
    )
    token: SecretStr | None = None
    token_file: Path | None = None


class Settings(ModelSettings, ThresholdSettings):
    """All settings and limits, with their units. The environment variable of a setting is `RECALL_`
    and its name in capitals, unless it has an alias.
    """

    model_config = SettingsConfigDict(
        env_prefix="RECALL_", frozen=True, extra="forbid", populate_by_name=True
    )

    db_path: Path = Field(Path("recall.db"), description="the SQLite file")
    db_url: SecretStr | None = Field(None, description="a Postgres URL; if set, it is used instead")
    db_password: SecretStr | None = Field(
        None, description="the password of the Postgres user, if RECALL_DB_URL has none"
    )
    host: str = Field("127.0.0.1", description="the address to listen on")
    port: int = Field(
        8000,
        ge=0,
        le=65535,
        validation_alias=AliasChoices("RECALL_PORT", "ENGRAM_PORT"),
        description="the port to listen on; 0: a free one",
    )
    probe_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="a further port of a server or worker, for /health, /ready and /metrics alone; "
        "0: a free one",
    )
    probe_host: str = Field("127.0.0.1", description="the address of that port")
    health_file: Path | None = Field(
        None,
        description="a file that a server or worker rewrites every 5 seconds while its background "
        "work runs; if it is older than a minute, that work has stopped",
    )
    allow_public: bool = Field(
        default=False,
        description="listen on an address that others can reach, without TLS of our own",
    )
    allow_shared_files: bool = Field(
        default=False,
        description="start even if others than the owner can read the key or the database file",
    )
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="further host names that requests may name, separated by commas"
    )
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="web origins that may call, separated by commas"
    )
    mcp_toolsets: Annotated[
        tuple[Literal["reviews", "engram", "camillo", "agenternal"], ...], NoDecode
    ] = Field(
        (),
        description="further tools that MCP lists, separated by commas: reviews, and other servers'"
        " names of tools: engram, camillo, agenternal",
    )
    mcp_sse: bool = Field(
        default=False,
        description="also serve MCP over HTTP with SSE, for clients that speak no newer transport, "
        "at /mcp/sse",
    )
    mem0: bool = Field(
        default=False, description="also serve the routes of mem0's servers, under /mem0"
    )
    public_url: str | None = Field(
        None,
        description="the address at which others reach this server, for its agent card; unset: the "
        "address that each request names",
    )
    card_key_file: Path | None = Field(
        None,
        description="a PEM file with the private keys that sign the agent card: Ed25519, EC P-256",
    )
    embedder: str = Field(
        "wordllama",
        description="what makes vectors of texts: wordllama, none, sentence-transformers[:NAME or "
        "PATH] (needs the extra), or http:MODEL",
    )
    embedder_url: str | None = Field(
        None,
        validation_alias=AliasChoices("RECALL_EMBEDDER_URL", "EMBEDDING_URL"),
        description="the OpenAI-compatible address of the embedder http, such as "
        "http://127.0.0.1:11434/v1",
    )
    embedder_api_key: SecretStr | None = Field(
        None, description="the bearer token for that address, if it asks for one"
    )
    # Less than deadline_s, so that a search that times out here can continue without vectors.
    embedder_timeout_s: float = Field(
        20.0, gt=0, description="seconds for one batch of a model of the extra or of an endpoint"
    )
    embedder_batch: int = Field(32, ge=1, le=2_048, description="texts in one such batch")
    reranker: str = Field(
        "none",
        description="what re-ranks the best hits (needs the extra): none, maxsim[:NAME or "
        "PATH], or cross-encoder:NAME or PATH",
    )
    reranker_timeout_s: float = Field(
        5.0, gt=0, description="seconds for the re-ranker in one search"
    )
    reranker_cache_bytes_max: int = Field(
        64 * 2**20,
        ge=0,
        description="bytes of memory for what maxsim has read: about 25 kB for each turn",
    )
    rerank_min_score: float = Field(
        0.0,
        ge=0,
        le=1,
        validation_alias=AliasChoices(
            "RECALL_RERANK_MIN_SCORE", "RERANK_MIN_SCORE", "rerank_min_score"
        ),
        description="with a re-ranker that judges: the least score of a hit that is shown",
    )
    allow_downloads: bool = Field(
        default=False,
        description="fetch a model of the extra from its hub if it is not on this machine",
    )
    torch_threads: int = Field(
        0,
        ge=0,
        description="processors that a model of the extra may use; 0: half of them",
    )
    key_file: Path | None = Field(
        None,
        description="a PEM file with the Ed25519 key of this server, made at the first start; "
        "unset: FILE.key beside the SQLite file FILE, or recall.key",
    )
    issuers_file: Path | None = Field(
        None, description="a JSON file with the identity providers whose tokens are accepted"
    )
    secret_key: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        (), description="keys that seal stored secrets, the newest first, separated by commas"
    )
    checkpoint_file: Path | None = Field(
        None,
        description="a file to which signed checkpoints of the audit log are appended; keep it in "
        "another place than the server's database",
    )
    erasure_file: Path | None = Field(
        None,
        description="a file in which erasures are noted, sealed; a database that does not know all "
        "of them is an old backup, and is not served. Unset: FILE.erasures beside the SQLite file "
        "FILE, and none for Postgres. Keep it in a place that backups do not overwrite",
    )
    checkpoint_url: str | None = Field(
        None, description="an address to which signed checkpoints are POSTed, one on each line"
    )
    checkpoint_s: float = Field(
        3600.0, gt=0, description="seconds between checkpoints, if there is a place for them"
    )
    audit_days: float = Field(
        0.0,
        ge=0,
        description="days for which records of the audit log are kept in the database; older ones "
        "are written to RECALL_AUDIT_ARCHIVE and cut; 0: for ever",
    )
    audit_archive: Path | None = Field(
        None,
        validate_default=True,
        description="a folder for records of the audit log that are cut: one signed file for each "
        "cut",
    )
    job_days: float = Field(
        0.0, ge=0, description="days for which a job that has ended is kept; 0: for ever"
    )
    ended_token_days: float = Field(
        0.0,
        ge=0,
        description="days for which a revoked or expired token is kept, so that lists and refusals "
        "say so; 0: for ever",
    )
    retention_s: float = Field(
        86_400.0,
        gt=0,
        description="seconds between removals of records of the audit log, jobs and tokens whose "
        "days are over",
    )
    push_allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="hosts, host:port or CIDR blocks that push may reach even if they are private "
        "or without TLS, separated by commas",
    )
    push_timeout_s: float = Field(15.0, gt=0, le=60, description="seconds for one push")
    push_lookup_s: float = Field(
        5.0, gt=0, description="of these, seconds to look up the name of a receiver"
    )
    push_lookups: int = Field(8, ge=1, description="names of receivers that are looked up at once")
    namespace_push_lookups: int = Field(
        2,
        ge=1,
        description="of these, for one namespace; if there are several, always fewer than all",
    )
    namespace_webhooks: int = Field(10, ge=0, description="webhooks of one namespace")
    webhook_pending_max: int = Field(
        10_000,
        ge=1,
        description="events that may wait for one webhook; with more, the webhook is dead",
    )
    mask_secrets: bool = Field(
        default=True, description="overwrite keys, tokens and passwords before a text is stored"
    )
    text_chars_max: int = Field(262_144, ge=1, description="characters of one stored text")
    text_passages_max: int = Field(
        10_000, ge=1, description="passages, the units of search, of one stored text"
    )
    undo_events_max: int = Field(
        1_000,
        ge=100,
        description="events of memories and texts that one undo may take back, in one transaction; "
        "1,000 of them hold the writer of SQLite for about 0.04 s of processor, and other "
        "writers of the namespace on PostgreSQL for about 0.4 s",
    )
    query_chars_max: int = Field(8_192, ge=1, description="characters of one query")
    body_bytes_max: int = Field(2_097_152, ge=1_024, description="bytes of one request body")
    json_depth_max: int = Field(64, ge=8, description="levels of nesting in a request body")
    import_line_bytes_max: int = Field(
        16_777_216, ge=1_024, description="bytes of one line of an export that is imported"
    )
    deadline_s: float = Field(30.0, gt=0, description="seconds for one operation")
    query_s: float = Field(
        3.0, gt=0, description="seconds for one statement to the database, in a call that reads"
    )
    export_s: float = Field(
        600.0,
        gt=0,
        description="seconds for one export; during this time the database keeps overwritten rows",
    )
    exports_at_once: int = Field(3, ge=1, description="exports at once, one for each namespace")
    export_reader_s: float = Field(
        5.0,
        gt=0,
        description="seconds in all that an export waits for its reader, if other namespaces wait "
        "for their turn",
    )
    drain_s: float = Field(5.0, ge=0, description="seconds to finish open calls when stopping")
    stop_delay_s: float = Field(
        0.0,
        ge=0,
        description="seconds from SIGTERM until the port is closed; meanwhile /ready says no and "
        "calls are accepted. Set it to the time that a load balancer needs to notice",
    )
    token_calls_per_minute: int = Field(
        12_000, ge=0, description="calls that one token may make in a minute; 0: any number"
    )
    namespace_calls_per_minute: int = Field(
        30_000, ge=0, description="calls in a minute of all tokens of a namespace; 0: any number"
    )
    bad_tokens_per_minute: int = Field(
        300, ge=0, description="401 answers to one address in a minute, then 429; 0: any number"
    )
    anonymous_calls_per_minute: int = Field(
        600,
        ge=0,
        description="calls that need no token from one address in a minute, without health checks; "
        "0: any number",
    )
    namespace_bytes_max: int = Field(
        1_073_741_824,
        ge=0,
        description="bytes that a namespace may keep, of texts and of tasks, with 256 for each "
        "passage and memory; 0: any number",
    )
    model_tokens_per_day: int = Field(
        10_000_000,
        ge=0,
        description="tokens of a language model, in and out, that a namespace may use in a day, in "
        "UTC; 0: any number",
    )
    calls_at_once: int = Field(16, ge=1, description="calls that are processed at once")
    namespace_calls_at_once: int = Field(
        2,
        ge=1,
        description="calls of one namespace that are processed at once while no other namespace "
        "calls; otherwise one",
    )
    turn_wait_s: float = Field(
        10.0, gt=0, description="seconds that a call waits for its turn before it is refused"
    )
    streams_per_namespace: int = Field(20, ge=0, description="open streams of one namespace")
    connections_max: int = Field(1_000, ge=1, description="open connections")
    header_s: float = Field(10.0, gt=0, description="seconds for a client to send its headers")
    body_s: float = Field(30.0, gt=0, description="seconds for a client to send its body")
    unread_s: float = Field(
        30.0, gt=0, description="seconds that a client may leave its answer unread"
    )
    task_wait_s: float = Field(
        120.0, gt=0, description="seconds that a blocking A2A call waits for its task"
    )
    task_poll_s: float = Field(
        0.5, gt=0, description="seconds between checks for changes of a task by other processes"
    )
    task_bytes_max: int = Field(
        33_554_432,
        ge=65_536,
        description="bytes of one A2A task, with its messages, events and result",
    )
    task_messages_max: int = Field(
        200, ge=2, description="newest messages of one A2A task that are kept"
    )
    task_questions_max: int = Field(
        50, ge=1, description="questions that an A2A task asks at once; more follow the answers"
    )
    task_changes_max: int = Field(
        900, ge=1, description="changes that an A2A task makes of one text; the rest is not read"
    )
    answer_bytes_max: int = Field(
        65_536, ge=1_024, description="bytes of one answer to the questions of an A2A task"
    )
    task_days: float = Field(30.0, gt=0, description="days for which an ended task is kept")
    token_days: float = Field(
        90.0,
        gt=0,
        le=36_500,
        description="days after which a token ends, unless the token has its own end",
    )
    forget_days: float = Field(
        30.0, ge=0, description="days for which a forgotten memory can be restored"
    )
    worker_jobs: int = Field(5, ge=0, description="jobs at once in this process; 0: none")
    namespace_worker_jobs: int = Field(
        4,
        ge=1,
        description="of these, for one namespace; if there are several, always fewer than all",
    )
    push_jobs: int = Field(
        8,
        ge=1,
        description="deliveries of pushes at once, in addition to the jobs, in a process with jobs",
    )
    namespace_push_jobs: int = Field(
        2,
        ge=1,
        description="of these, for one namespace; if there are several, always fewer than all",
    )
    worker_poll_s: float = Field(1.0, gt=0, description="seconds between searches for jobs")
    lease_s: float = Field(
        180.0,
        gt=0,
        description="seconds after which a job is taken from a process that may have ended",
    )
    purge_interval_s: float = Field(
        300.0,
        ge=0,
        description="seconds between purges; each one rewrites the files of the database for all "
        "erasures since the last one",
    )
    unused_s: float = Field(
        600.0,
        gt=0,
        description="seconds after which a server that `recall stdio` has started ends, if no "
        "client is left",
    )
    cache_bytes_max: int = Field(
        268_435_456, ge=0, description="bytes of indexes kept in memory for search"
    )
    otlp_endpoint: str | None = Field(
        None,
        description="the address that spans are sent to (OTLP over HTTP), such as "
        "http://127.0.0.1:4318; needs the extra [tracing]",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="the least level of log lines"
    )

    def __init__(self, **given: Any) -> None:
        # An option that was not given must not hide the environment.
        super().__init__(**{name: value for name, value in given.items() if value is not None})

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del env_settings, file_secret_settings
        assert isinstance(dotenv_settings, DotEnvSettingsSource)
        variables = _Variables(settings_cls)
        sources = [init_settings, _SecretFiles(settings_cls, variables), variables]
        if dotenv_settings.env_vars:
            # The file's own source would refuse variables of other programs.
            env_file = _Variables(settings_cls)
            # A database that the environment names goes before one that the file names otherwise.
            hidden = _OF_URL if variables.env_vars.get("recall_db_path") else frozenset()
            env_file.env_vars = {
                name: value
                for name, value in dotenv_settings.env_vars.items()
                if name not in hidden
            }
            sources += [_SecretFiles(settings_cls, env_file), env_file]
        return (*sources,)

    @field_validator(
        *("allowed_hosts", "allowed_origins", "push_allowed_hosts", "secret_key", "mcp_toolsets"),
        mode="before",
    )
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (
            [*filter(None, map(str.strip, value.split(",")))] if isinstance(value, str) else value
        )

    @field_validator("*", mode="before")
    @classmethod
    def _not_empty(cls, value: Any, info: ValidationInfo) -> Any:
        # An environment file may name a variable without a value.
        optional = cls.model_fields[str(info.field_name)].default is None
        return None if optional and value == "" else value

    @field_validator("db_path")
    @classmethod
    def _a_file(cls, value: Path) -> Path:
        # The names of other files are derived from it.
        if not value.name:
            raise ValueError("it must name a file")
        return value

    @field_validator("audit_archive")
    @classmethod
    def _archived(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is None and info.data.get("audit_days"):
            raise ValueError("it must name a folder where RECALL_AUDIT_DAYS is set")
        return value

    @field_validator(
        "public_url", "checkpoint_url", "embedder_url", "otlp_endpoint", "merge_url", "judge_url"
    )
    @classmethod
    def _an_address(cls, value: str | None) -> str | None:
        if value is not None and not is_address(value):
            raise ValueError("it must be an address such as https://memory.example.com")
        return value and value.rstrip("/")

    @property
    def database(self) -> Path | str:
        """The database: the path of an SQLite file, or the URL of a Postgres database."""
        if self.db_url is None:
            return self.db_path
        url = self.db_url.get_secret_value()
        if self.db_password is None:
            return url
        secret = self.db_password.get_secret_value()
        if "://" not in url:
            quoted = secret.replace("\\", r"\\").replace("'", r"\'")
            return f"{url} password='{quoted}'"
        return f"{url}{'&' if '?' in url else '?'}password={quote(secret, safe='')}"

    @property
    def canonical_url(self) -> str | None:
        """The audience of other issuers' tokens for this server; None without public_url."""
        return self.public_url and f"{self.public_url}/mcp"

    @property
    def key_path(self) -> Path:
        if self.key_file is not None:
            return self.key_file
        beside = self.database
        name = "recall.key"
        return Path(name) if isinstance(beside, str) else beside.with_name(f"{beside.name}.key")

    @property
    def erasure_path(self) -> Path | None:
        """The file outside the database that records erasures."""
        if self.erasure_file is not None:
            return self.erasure_file
        beside = self.database
        return None if isinstance(beside, str) else beside.with_name(f"{beside.name}.erasures")

    @property
    def public(self) -> bool:
        return self.host not in LOOPBACK


class _Variables(EnvSettingsSource):
    """Looks at settings only if a variable names them: looking at the types of all takes 10 ms."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        alias = field.validation_alias
        named = map(str, alias.choices) if isinstance(alias, AliasChoices) else ()
        if self.env_vars.keys().isdisjoint({f"recall_{field_name}", *map(str.lower, named)}):
            return None, field_name, False
        return super().get_field_value(field, field_name)

    def prepare_field_value(
        self, field_name: str, field: FieldInfo, value: Any, value_is_complex: bool
    ) -> Any:
        if value is None:
            return None
        return super().prepare_field_value(field_name, field, value, value_is_complex)


class _SecretFiles(PydanticBaseSettingsSource):
    """Reads secrets from the files that variables `NAME_FILE` of another source name. Raises
    `Invalid` if a file cannot be read, or `NAME` is set too.
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
    alias = field.validation_alias
    return str(alias.choices[0]) if isinstance(alias, AliasChoices) else f"RECALL_{name.upper()}"


def is_secret(field: FieldInfo) -> bool:
    return "SecretStr" in str(field.annotation)


def is_address(value: str) -> bool:
    """Return whether `value` is an http or https URL without credentials, query and fragment."""
    return _ADDRESS.fullmatch(value) is not None

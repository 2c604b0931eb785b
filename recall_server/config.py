"""Every setting, read once: of the command line, else the environment, `.env`, these defaults."""

import re
from dataclasses import dataclass
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

from recall_server.domain.errors import Invalid
from recall_server.domain.extraction import Role
from recall_server.domain.intents import Thresholds

ANTHROPIC_URL = "https://api.anthropic.com"
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


@dataclass(frozen=True)
class RoleModel:
    """The language model of a role. `named`, `key_variable`, `model_variable` and `url_variable`
    are for error messages: what has the role, and the settings that are missing or wrong.
    """

    provider: Literal["anthropic", "openai"]
    model: str | None
    url: str | None
    api_key: SecretStr | None
    deadline_s: float
    named: str
    model_variable: str
    url_variable: str
    key_variable: str


class ModelSettings(BaseSettings):
    """Each role may have a provider, model, address, key and deadline of its own. Where it has
    none, it takes that of the extractor.
    """

    extractor: Literal["auto", "rules", "anthropic", "openai"] = "auto"
    """what makes memories of text; auto: anthropic if there is a key; openai: any OpenAI-compatible
    server"""
    anthropic_api_key: SecretStr | None = Field(
        None, validation_alias=AliasChoices("ANTHROPIC_API_KEY", "anthropic_api_key")
    )
    """for the extractor anthropic"""
    anthropic_base_url: str = Field(
        ANTHROPIC_URL, validation_alias=AliasChoices("ANTHROPIC_BASE_URL", "anthropic_base_url")
    )
    """the address of the Messages API"""
    openai_api_key: SecretStr | None = Field(
        None, validation_alias=AliasChoices("OPENAI_API_KEY", "openai_api_key")
    )
    """for the extractor openai, if its server asks for one"""
    openai_base_url: str | None = Field(
        None, validation_alias=AliasChoices("OPENAI_BASE_URL", "openai_base_url")
    )
    """the address of the extractor openai, such as http://127.0.0.1:11434/v1; unset: that of
    OpenAI"""
    model: str | None = None
    """the language model; unset: claude-haiku-4-5 for anthropic; openai needs one"""
    merge_provider: Literal["rules", "anthropic", "openai"] | None = None
    """what merges memories; unset: what makes them"""
    merge_model: str | None = None
    """the language model that merges memories; unset: that of RECALL_MODEL"""
    merge_url: str | None = None
    """the address of that model; unset: that of its provider"""
    merge_api_key: SecretStr | None = None
    """the key for it; unset: that of its provider, if RECALL_MERGE_URL is too"""
    merge_deadline_s: float | None = Field(None, gt=0)
    """seconds for one call of it; unset: RECALL_MODEL_DEADLINE_S"""
    judge_provider: Literal["none", "anthropic", "openai"] | None = None
    """what judges contradictions; unset: what makes memories, or none"""
    judge_model: str | None = None
    """the language model that judges contradictions; unset: that of RECALL_MODEL"""
    judge_url: str | None = None
    """the address of that model; unset: that of its provider"""
    judge_api_key: SecretStr | None = None
    """the key for it; unset: that of its provider, if RECALL_JUDGE_URL is too"""
    judge_deadline_s: float | None = Field(None, gt=0)
    """seconds for one call of it; unset: RECALL_MODEL_DEADLINE_S"""
    judge_confidence: float | None = Field(None, ge=0, le=1)
    """how sure the language model must be to settle a dispute, such as 0.8; unset: it settles
    none"""
    model_fallback: Literal["none", "rules"] = "none"
    """what makes memories while the key of the language model is rejected; none: the texts wait for
    another key"""
    model_deadline_s: float = Field(60.0, gt=0)
    """seconds for one call of the model"""

    def model_of(self, role: Role) -> RoleModel | None:
        """Return the language model of a role; None if it has none."""

        def own(setting: str) -> Any:
            """The setting of the role; the extractor has those of all roles."""
            return None if role is Role.EXTRACT else getattr(self, f"{role}_{setting}")

        extracts = self.extractor
        if extracts == "auto":
            extracts = "rules" if self.anthropic_api_key is None else "anthropic"
        provider = own("provider") or extracts
        url: str | None
        if provider == "anthropic":
            url, key = self.anthropic_base_url, self.anthropic_api_key
        elif provider == "openai":
            url, key = self.openai_base_url, self.openai_api_key
        else:
            return None
        shared = self.model if extracts in {provider, "rules"} else None
        # The key of a provider is sent nowhere else.
        own_url, own_key = own("url"), own("api_key")
        key = own_key or (None if own_url else key)
        variable, theirs = f"RECALL_{role.upper()}", provider.upper()
        return RoleModel(
            provider,
            own("model") or shared,
            own_url or url,
            key,
            own("deadline_s") or self.model_deadline_s,
            _NAMED[role],
            "RECALL_MODEL" if role is Role.EXTRACT else f"{variable}_MODEL",
            f"{variable}_URL" if own_url else f"{theirs}_BASE_URL",
            f"{variable}_API_KEY" if own_key or own_url else f"{theirs}_API_KEY",
        )


_NAMED = {Role.EXTRACT: "extractor", Role.MERGE: "merger", Role.JUDGE: "judge"}


class ThresholdSettings(BaseSettings):
    """The defaults are those of `Thresholds`."""

    match_min: float = Field(Thresholds.match_min, gt=0, le=1)
    """the least score of a memory that the words of a wish mean, to forget it or to find it said
    already"""
    correct_match_min: float = Field(Thresholds.correct_match_min, gt=0, le=1)
    """the same for a correction, which shares fewer words with what it corrects"""
    match_coverage: float = Field(Thresholds.match_coverage, ge=0, le=1)
    """how much of such a score is the share of the wish's words that the memory has; the rest is
    the share of the memory's words that the wish has"""
    doubted_max: float = Field(Thresholds.doubted_max, ge=0, le=1)
    """the highest confidence of a memory that needs a review; a model's memory with no more waits
    for an answer if the policy is ask"""

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(
            self.match_min, self.correct_match_min, self.match_coverage, self.doubted_max
        )


class Settings(ModelSettings, ThresholdSettings):
    """All settings and limits, with their units. The environment variable of a setting is `RECALL_`
    and its name in capitals, unless it has an alias.
    """

    model_config = SettingsConfigDict(
        env_prefix="RECALL_", frozen=True, extra="forbid", populate_by_name=True
    )

    db_path: Path = Path("recall.db")
    """the SQLite file"""
    db_url: SecretStr | None = None
    """a Postgres URL; if set, it is used instead"""
    db_password: SecretStr | None = None
    """the password of the Postgres user, if RECALL_DB_URL has none"""
    host: str = "127.0.0.1"
    """the address to listen on"""
    port: int = Field(
        8000, ge=0, le=65535, validation_alias=AliasChoices("RECALL_PORT", "ENGRAM_PORT")
    )
    """the port to listen on; 0: a free one"""
    probe_port: int | None = Field(None, ge=0, le=65535)
    """a further port of a server or worker, for /health, /ready and /metrics alone; 0: a free
    one"""
    probe_host: str = "127.0.0.1"
    """the address of that port"""
    health_file: Path | None = None
    """a file that a server or worker rewrites every 5 seconds while its background work runs; if it
    is older than a minute, that work has stopped"""
    allow_public: bool = False
    """listen on an address that others can reach, without TLS of our own"""
    allow_shared_files: bool = False
    """start even if others than the owner can read the key or the database file"""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """further host names that requests may name, separated by commas"""
    allowed_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """web origins that may call, separated by commas"""
    mcp_toolsets: Annotated[
        tuple[Literal["reviews", "engram", "camillo", "agenternal"], ...], NoDecode
    ] = ()
    """further tools that MCP lists, separated by commas: reviews, and other servers' names of
    tools: engram, camillo, agenternal"""
    mcp_sse: bool = False
    """also serve MCP over HTTP with SSE, for clients that speak no newer transport, at /mcp/sse"""
    mem0: bool = False
    """also serve the routes of mem0's servers, under /mem0"""
    public_url: str | None = None
    """the address at which others reach this server, for its agent card; unset: the address that
    each request names"""
    card_key_file: Path | None = None
    """a PEM file with the private keys that sign the agent card: Ed25519, EC P-256"""
    embedder: str = "wordllama"
    """what makes vectors of texts: wordllama, none, sentence-transformers[:NAME or PATH] (needs the
    extra), or http:MODEL"""
    embedder_url: str | None = Field(
        None, validation_alias=AliasChoices("RECALL_EMBEDDER_URL", "EMBEDDING_URL")
    )
    """the OpenAI-compatible address of the embedder http, such as http://127.0.0.1:11434/v1"""
    embedder_api_key: SecretStr | None = None
    """the bearer token for that address, if it asks for one"""
    # Less than deadline_s, so that a search that times out here can continue without vectors.
    embedder_timeout_s: float = Field(20.0, gt=0)
    """seconds for one batch of a model of the extra or of an endpoint"""
    embedder_batch: int = Field(32, ge=1, le=2_048)
    """texts in one such batch"""
    reranker: str = "none"
    """what re-ranks the best hits (needs the extra): none, maxsim[:NAME or PATH], or
    cross-encoder:NAME or PATH"""
    reranker_timeout_s: float = Field(5.0, gt=0)
    """seconds for the re-ranker in one search"""
    reranker_cache_bytes_max: int = Field(64 * 2**20, ge=0)
    """bytes of memory for what maxsim has read: about 25 kB for each turn"""
    rerank_min_score: float = Field(
        0.0,
        ge=0,
        le=1,
        validation_alias=AliasChoices(
            "RECALL_RERANK_MIN_SCORE", "RERANK_MIN_SCORE", "rerank_min_score"
        ),
    )
    """with a re-ranker that judges: the least score of a hit that is shown"""
    allow_downloads: bool = False
    """fetch a model of the extra from its hub if it is not on this machine"""
    torch_threads: int = Field(0, ge=0)
    """processors that a model of the extra may use; 0: half of them"""
    key_file: Path | None = None
    """a PEM file with the Ed25519 key of this server, made at the first start; unset: FILE.key
    beside the SQLite file FILE, or recall.key"""
    issuers_file: Path | None = None
    """a JSON file with the identity providers whose tokens are accepted"""
    secret_key: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    """keys that seal stored secrets, the newest first, separated by commas"""
    checkpoint_file: Path | None = None
    """a file to which signed checkpoints of the audit log are appended; keep it in another place
    than the server's database"""
    erasure_file: Path | None = None
    """a file in which erasures are noted, sealed; a database that does not know all of them is an
    old backup, and is not served. Unset: FILE.erasures beside the SQLite file FILE, and none for
    Postgres. Keep it in a place that backups do not overwrite"""
    checkpoint_url: str | None = None
    """an address to which signed checkpoints are POSTed, one on each line"""
    checkpoint_s: float = Field(3600.0, gt=0)
    """seconds between checkpoints, if there is a place for them"""
    audit_days: float = Field(0.0, ge=0)
    """days for which records of the audit log are kept in the database; older ones are written to
    RECALL_AUDIT_ARCHIVE and cut; 0: for ever"""
    audit_archive: Path | None = Field(None, validate_default=True)
    """a folder for records of the audit log that are cut: one signed file for each cut"""
    job_days: float = Field(0.0, ge=0)
    """days for which a job that has ended is kept; 0: for ever"""
    ended_token_days: float = Field(0.0, ge=0)
    """days for which a revoked or expired token is kept, so that lists and refusals say so; 0: for
    ever"""
    retention_s: float = Field(86_400.0, gt=0)
    """seconds between removals of records of the audit log, jobs and tokens whose days are over"""
    push_allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """hosts, host:port or CIDR blocks that push may reach even if they are private or without TLS,
    separated by commas"""
    push_timeout_s: float = Field(15.0, gt=0, le=60)
    """seconds for one push"""
    push_lookup_s: float = Field(5.0, gt=0)
    """of these, seconds to look up the name of a receiver"""
    push_lookups: int = Field(8, ge=1)
    """names of receivers that are looked up at once"""
    namespace_push_lookups: int = Field(2, ge=1)
    """of these, for one namespace; if there are several, always fewer than all"""
    namespace_webhooks: int = Field(10, ge=0)
    """webhooks of one namespace"""
    webhook_pending_max: int = Field(10_000, ge=1)
    """events that may wait for one webhook; with more, the webhook is dead"""
    mask_secrets: bool = True
    """overwrite keys, tokens and passwords before a text is stored"""
    text_chars_max: int = Field(262_144, ge=1)
    """characters of one stored text"""
    text_passages_max: int = Field(10_000, ge=1)
    """passages, the units of search, of one stored text"""
    undo_events_max: int = Field(1_000, ge=100)
    """events of memories and texts that one undo may take back, in one transaction; 1,000 of them
    hold the writer of SQLite for about 0.04 s of processor, and other writers of the namespace on
    PostgreSQL for about 0.4 s"""
    query_chars_max: int = Field(8_192, ge=1)
    """characters of one query"""
    body_bytes_max: int = Field(2_097_152, ge=1_024)
    """bytes of one request body"""
    json_depth_max: int = Field(64, ge=8)
    """levels of nesting in a request body"""
    import_line_bytes_max: int = Field(16_777_216, ge=1_024)
    """bytes of one line of an export that is imported"""
    deadline_s: float = Field(30.0, gt=0)
    """seconds for one operation"""
    query_s: float = Field(3.0, gt=0)
    """seconds for one statement to the database, in a call that reads"""
    export_s: float = Field(600.0, gt=0)
    """seconds for one export; during this time the database keeps overwritten rows"""
    exports_at_once: int = Field(3, ge=1)
    """exports at once, one for each namespace"""
    export_reader_s: float = Field(5.0, gt=0)
    """seconds in all that an export waits for its reader, if other namespaces wait for their
    turn"""
    drain_s: float = Field(5.0, ge=0)
    """seconds to finish open calls when stopping"""
    stop_delay_s: float = Field(0.0, ge=0)
    """seconds from SIGTERM until the port is closed; meanwhile /ready says no and calls are
    accepted. Set it to the time that a load balancer needs to notice"""
    token_calls_per_minute: int = Field(12_000, ge=0)
    """calls that one token may make in a minute; 0: any number"""
    namespace_calls_per_minute: int = Field(30_000, ge=0)
    """calls in a minute of all tokens of a namespace; 0: any number"""
    bad_tokens_per_minute: int = Field(300, ge=0)
    """401 answers to one address in a minute, then 429; 0: any number"""
    anonymous_calls_per_minute: int = Field(600, ge=0)
    """calls that need no token from one address in a minute, without health checks; 0: any
    number"""
    namespace_bytes_max: int = Field(1_073_741_824, ge=0)
    """bytes that a namespace may keep, of texts and of tasks, with 256 for each passage and memory;
    0: any number"""
    model_tokens_per_day: int = Field(10_000_000, ge=0)
    """tokens of a language model, in and out, that a namespace may use in a day, in UTC; 0: any
    number"""
    calls_at_once: int = Field(16, ge=1)
    """calls that are processed at once"""
    namespace_calls_at_once: int = Field(2, ge=1)
    """calls of one namespace that are processed at once while no other namespace calls; otherwise
    one"""
    turn_wait_s: float = Field(10.0, gt=0)
    """seconds that a call waits for its turn before it is refused"""
    streams_per_namespace: int = Field(20, ge=0)
    """open streams of one namespace"""
    connections_max: int = Field(1_000, ge=1)
    """open connections"""
    header_s: float = Field(10.0, gt=0)
    """seconds for a client to send its headers"""
    body_s: float = Field(30.0, gt=0)
    """seconds for a client to send its body"""
    unread_s: float = Field(30.0, gt=0)
    """seconds that a client may leave its answer unread"""
    task_wait_s: float = Field(120.0, gt=0)
    """seconds that a blocking A2A call waits for its task"""
    task_poll_s: float = Field(0.5, gt=0)
    """seconds between checks for changes of a task by other processes"""
    task_bytes_max: int = Field(33_554_432, ge=65_536)
    """bytes of one A2A task, with its messages, events and result"""
    task_messages_max: int = Field(200, ge=2)
    """newest messages of one A2A task that are kept"""
    task_history_bytes_max: int = Field(2_097_152, ge=65_536)
    """bytes of the newest messages of one A2A task that are kept"""
    task_questions_max: int = Field(50, ge=1)
    """questions that an A2A task asks at once; more follow the answers"""
    task_changes_max: int = Field(900, ge=1)
    """changes that an A2A task makes of one text; the rest is not read"""
    answer_bytes_max: int = Field(65_536, ge=1_024)
    """bytes of one answer to the questions of an A2A task"""
    task_days: float = Field(30.0, gt=0)
    """days for which an ended task is kept"""
    token_days: float = Field(90.0, gt=0, le=36_500)
    """days after which a token ends, unless the token has its own end"""
    forget_days: float = Field(30.0, ge=0)
    """days for which a forgotten memory can be restored"""
    worker_jobs: int = Field(5, ge=0)
    """jobs at once in this process; 0: none"""
    namespace_worker_jobs: int = Field(4, ge=1)
    """of these, for one namespace; if there are several, always fewer than all"""
    push_jobs: int = Field(8, ge=1)
    """deliveries of pushes at once, in addition to the jobs, in a process with jobs"""
    namespace_push_jobs: int = Field(2, ge=1)
    """of these, for one namespace; if there are several, always fewer than all"""
    worker_poll_s: float = Field(1.0, gt=0)
    """seconds between searches for jobs"""
    lease_s: float = Field(180.0, gt=0)
    """seconds after which a job is taken from a process that may have ended"""
    purge_interval_s: float = Field(300.0, ge=0)
    """seconds between purges; each one rewrites the files of the database for all erasures since
    the last one"""
    unused_s: float = Field(600.0, gt=0)
    """seconds after which a server that `recall stdio` has started ends, if no client is left"""
    cache_bytes_max: int = Field(268_435_456, ge=0)
    """bytes of indexes kept in memory for search"""
    otlp_endpoint: str | None = None
    """the address that spans are sent to (OTLP over HTTP), such as http://127.0.0.1:4318; needs the
    extra [tracing]"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """the least level of log lines"""

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

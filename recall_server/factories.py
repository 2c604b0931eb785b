"""Builds the parts that the settings choose. Large modules are imported only if chosen."""

import re
from datetime import datetime
from importlib.util import find_spec

from pydantic import SecretStr

from recall_server.config import ANTHROPIC_URL, RoleModel, Settings, is_address
from recall_server.domain.context import Compute
from recall_server.domain.errors import DatabaseUnusable, Invalid
from recall_server.domain.extraction import Extractor, Judge, Merger, Role
from recall_server.integrations import llm
from recall_server.integrations.audit_files import (
    CheckpointFile,
    CheckpointStore,
    CheckpointUrl,
)
from recall_server.integrations.embeddings import (
    MINILM,
    SENTENCE_MODEL,
    Embedder,
    HttpEmbedder,
    SentenceEmbedder,
    StaticEmbedder,
)
from recall_server.integrations.issuers import Issuer, check_issuer, load_issuers
from recall_server.integrations.keys import ServerKey
from recall_server.integrations.llm import ModelApi
from recall_server.integrations.rerankers import CrossEncoderReranker, MaxSimReranker, Reranker
from recall_server.services.memory.episodes import Redaction
from recall_server.storage.store import Store

_KEY = re.compile(r"[!-~]+")
OPENAI_URL = "https://api.openai.com/v1"


def refuse_lost(settings: Settings) -> None:
    """Raise `DatabaseUnusable` if the key exists but its database does not: SQLite would create an
    empty one and hide the loss.
    """
    path = settings.database
    if isinstance(path, str) or settings.key_file is not None or not settings.key_path.exists():
        return
    # Before the first checkpoint all data may be in the write-ahead log.
    parts = (path, path.with_name(path.name + "-wal"))
    if not any(part.exists() and part.stat().st_size for part in parts):
        raise DatabaseUnusable(
            f"{path} is gone or empty, and its key {settings.key_path} is there. Put the database "
            "back from a backup. To begin anew, remove the key too."
        )


async def server_key(store: Store, settings: Settings, now: datetime) -> ServerKey:
    """Return the key of the database. It is created only together with the database."""
    path = settings.key_path
    bound = await store.autocommit(None).server.kid()
    if bound is None and not path.exists():
        ServerKey.make(path)
    key = ServerKey.read(path)
    if bound is None:
        async with store.transaction(None) as tx:
            await tx.server.bind(key.kid, key.public, now)
            bound = await tx.server.kid()
    if bound != key.kid:
        raise DatabaseUnusable(
            f"The database belongs to the key {bound}, and {path} holds {key.kid}. Point "
            "RECALL_KEY_FILE at the file that this database was set up with."
        )
    return key


def checkpoint_places(settings: Settings) -> list[CheckpointStore]:
    places: list[CheckpointStore] = []
    if settings.checkpoint_file is not None:
        places.append(CheckpointFile(settings.checkpoint_file))
    if settings.checkpoint_url is not None:
        places.append(CheckpointUrl(settings.checkpoint_url, settings.push_timeout_s))
    return places


def issuers(settings: Settings) -> tuple[Issuer, ...]:
    """Return the configured identity providers. Raises `Invalid`."""
    if settings.issuers_file is None:
        return ()
    found = load_issuers(settings.issuers_file, settings.canonical_url)
    for one in found:
        check_issuer(one)
    return found


def redaction(settings: Settings) -> Redaction:
    if not settings.mask_secrets:
        return Redaction(None)
    from recall_server.integrations.redaction import SecretRedactor  # noqa: PLC0415

    return Redaction(SecretRedactor())


def extractor(settings: Settings) -> Extractor | None:
    """Return the extractor by a language model; None if the rules are used. Raises `Invalid`."""
    api = _model_api(settings, Role.EXTRACT)
    if api is None:
        return None
    from recall_server.domain.attributes import vocabulary  # noqa: PLC0415
    from recall_server.integrations.llm.roles import (  # noqa: PLC0415
        ModelExtractor,
    )

    return ModelExtractor(api, prompt=llm.load_prompt("extract"), attributes=vocabulary())


def rules_extractor(compute: Compute) -> Extractor:
    from recall_server.integrations.rules import RulesExtractor  # noqa: PLC0415

    return RulesExtractor(compute)


def merger(settings: Settings, compute: Compute) -> Merger:
    """Raises `Invalid`."""
    api = _model_api(settings, Role.MERGE)
    if api is None:
        return rules_merger(compute)
    from recall_server.integrations.llm.roles import ModelMerger  # noqa: PLC0415

    return ModelMerger(api, prompt=llm.load_prompt("merge"), compute=compute)


def rules_merger(compute: Compute) -> Merger:
    from recall_server.integrations.rules.merger import RulesMerger  # noqa: PLC0415

    return RulesMerger(compute)


def judge(settings: Settings) -> Judge | None:
    """Return what judges contradictions; None where there is no language model. Raises
    `Invalid`.
    """
    api = _model_api(settings, Role.JUDGE)
    if api is None:
        return None
    from recall_server.integrations.llm.roles import ModelJudge  # noqa: PLC0415

    return ModelJudge(api, prompt=llm.load_prompt("judge"))


def _model_api(settings: Settings, role: Role) -> ModelApi | None:
    """Return the client of a role's language model; None if it has none. Raises `Invalid`. The SDK
    of a vendor is imported here, as it takes longer to load than everything else.
    """
    chosen = settings.model_of(role)
    if chosen is None:
        return None
    if chosen.provider == "openai":
        return _openai_api(chosen)
    if chosen.api_key is None:
        raise Invalid(
            f"The {chosen.named} anthropic needs {chosen.key_variable}. Set it, or use rules."
        )
    _require("anthropic", "A key for Anthropic is set")
    from recall_server.integrations.llm.claude_api import ClaudeApi  # noqa: PLC0415

    return ClaudeApi(
        api_key=_sendable(chosen.api_key, chosen.key_variable),
        base_url=chosen.url or ANTHROPIC_URL,
        model=chosen.model or "claude-haiku-4-5",
        deadline_s=chosen.deadline_s,
    )


def _openai_api(chosen: RoleModel) -> ModelApi:
    key, url = chosen.api_key, chosen.url
    if chosen.model is None:
        raise Invalid(
            f"The {chosen.named} openai needs {chosen.model_variable}, the name of a model. Set it."
        )
    if key is None and url is None:
        raise Invalid(
            f"The {chosen.named} openai needs {chosen.key_variable}, or {chosen.url_variable} with "
            "the address of a server that asks for none. Set one of them, or use rules."
        )
    # Checked only here: the variable may be meant for other programs on this machine.
    if url is not None and not is_address(url):
        raise Invalid(
            f"{chosen.url_variable} must be an address such as http://127.0.0.1:11434/v1."
        )
    _require("openai", f"The {chosen.named} openai is set")
    from recall_server.integrations.llm.openai_api import OpenAIApi  # noqa: PLC0415

    return OpenAIApi(
        api_key=_sendable(key, chosen.key_variable) if key else None,
        base_url=url or OPENAI_URL,
        model=chosen.model,
        deadline_s=chosen.deadline_s,
    )


def _sendable(key: SecretStr, name: str) -> str:
    """Return the key without blanks around it, such as the final line break of a file. Raises
    `Invalid` if it cannot be sent in a header.
    """
    value = key.get_secret_value().strip()
    if not _KEY.fullmatch(value):
        raise Invalid(f"{name} is no key: it is empty, or has a character that no key has.")
    return value


def _require(package: str, why: str) -> None:
    """Raise `Invalid` if a package is not installed."""
    if find_spec(package) is None:
        raise Invalid(
            f"{why} and the package {package} is not installed. Run: "
            f"pip install 'recall-server[{package}]', or set RECALL_EXTRACTOR=rules."
        )


def embedder(settings: Settings) -> Embedder | None:
    """Raises `Invalid`."""
    name, _, model = settings.embedder.partition(":")
    match name:
        case "none":
            return None
        case "wordllama":
            return StaticEmbedder()
        case "sentence-transformers":
            return SentenceEmbedder(
                model or SENTENCE_MODEL,
                threads=settings.torch_threads,
                timeout_s=settings.embedder_timeout_s,
                batch=settings.embedder_batch,
                download=settings.allow_downloads,
            )
        case "http":
            return _http_embedder(model, settings)
    raise Invalid(
        "RECALL_EMBEDDER must be wordllama, none, sentence-transformers, "
        "sentence-transformers:NAME, or http:MODEL."
    )


def _http_embedder(model: str, settings: Settings) -> Embedder:
    if not model or settings.embedder_url is None:
        raise Invalid("The embedder http needs a model, http:MODEL, and RECALL_EMBEDDER_URL.")
    key = settings.embedder_api_key
    return HttpEmbedder(
        model,
        url=settings.embedder_url,
        api_key=key.get_secret_value() if key else None,
        timeout_s=settings.embedder_timeout_s,
        batch=settings.embedder_batch,
    )


def reranker(settings: Settings) -> Reranker | None:
    """Raises `Invalid`."""
    name, _, model = settings.reranker.partition(":")
    if name == "none":
        return None
    if name == "maxsim":
        return MaxSimReranker(
            model or MINILM,
            threads=settings.torch_threads,
            timeout_s=settings.reranker_timeout_s,
            cache_bytes_max=settings.reranker_cache_bytes_max,
            download=settings.allow_downloads,
        )
    if name == "cross-encoder" and model:
        return CrossEncoderReranker(
            model,
            threads=settings.torch_threads,
            timeout_s=settings.reranker_timeout_s,
            download=settings.allow_downloads,
        )
    raise Invalid("RECALL_RERANKER must be none, maxsim, maxsim:NAME, or cross-encoder:NAME.")

"""The parts that the settings choose. Large ones are imported where they are chosen."""

from datetime import datetime

from recall_server import prompts
from recall_server.config import Settings
from recall_server.domain.errors import DatabaseUnusable, Invalid
from recall_server.providers import key_set
from recall_server.providers.checkpoints import CheckpointFile, CheckpointUrl, Place
from recall_server.providers.embedding import Embedder
from recall_server.providers.extraction import Extractor
from recall_server.providers.issuers import Issuer, load
from recall_server.providers.keys import ServerKey
from recall_server.providers.merging import Merger
from recall_server.services.masking import Masking
from recall_server.storage.store import Store


async def server_key(store: Store, settings: Settings, now: datetime) -> ServerKey:
    """The key that the database belongs to; it is made with the database, and never again."""
    path = settings.key_path
    async with store.transaction(None, write=False) as tx:
        bound = await tx.server.kid()
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


def checkpoint_places(settings: Settings) -> list[Place]:
    """Where checkpoints go."""
    places: list[Place] = []
    if settings.checkpoint_file is not None:
        places.append(CheckpointFile(settings.checkpoint_file))
    if settings.checkpoint_url is not None:
        places.append(CheckpointUrl(settings.checkpoint_url, settings.push_timeout_s))
    return places


def issuers(settings: Settings) -> tuple[Issuer, ...]:
    """The identity providers that the operator named. Raises `Invalid`."""
    if settings.issuers_file is None:
        return ()
    found = load(settings.issuers_file, settings.canonical_url)
    for one in found:
        key_set.check(one)
    return found


def masking(settings: Settings) -> Masking:
    if not settings.mask_secrets:
        return Masking(None)
    from recall_server.providers.redaction import SecretRedactor  # noqa: PLC0415

    return Masking(SecretRedactor())


def extractor(settings: Settings) -> Extractor:
    key = settings.anthropic_api_key
    if settings.extractor == "anthropic" and key is None:
        raise Invalid("The extractor anthropic needs ANTHROPIC_API_KEY. Set it, or use rules.")
    if settings.extractor != "rules" and key is not None:
        # Imported on use: the SDK takes longer to load than all the rest.
        from recall_server.domain.attributes import vocabulary  # noqa: PLC0415
        from recall_server.providers.claude import ClaudeExtractor  # noqa: PLC0415

        return ClaudeExtractor(
            api_key=key.get_secret_value(),
            base_url=settings.anthropic_base_url,
            model=settings.model,
            deadline_s=settings.model_deadline_s,
            attributes=vocabulary(),
            prompt=prompts.load("extract"),
        )
    from recall_server.providers.rules import RulesExtractor  # noqa: PLC0415

    return RulesExtractor()


def merger(settings: Settings) -> Merger:
    key = settings.anthropic_api_key
    if settings.extractor != "rules" and key is not None:
        from recall_server.providers.claude_merge import ClaudeMerger  # noqa: PLC0415

        return ClaudeMerger(
            api_key=key.get_secret_value(),
            base_url=settings.anthropic_base_url,
            model=settings.model,
            deadline_s=settings.model_deadline_s,
            prompt=prompts.load("merge"),
        )
    from recall_server.providers.rules.merge import RulesMerger  # noqa: PLC0415

    return RulesMerger()


def embedder(settings: Settings) -> Embedder | None:
    name, _, model = settings.embedder.partition(":")
    if name == "none":
        return None
    if name == "wordllama":
        from recall_server.providers.static_vectors import StaticEmbedder  # noqa: PLC0415

        return StaticEmbedder()
    if name == "sentence-transformers":
        from recall_server.providers.sentence_vectors import SentenceEmbedder  # noqa: PLC0415

        return SentenceEmbedder(model or "BAAI/bge-small-en-v1.5")
    raise Invalid("RECALL_EMBEDDER must be wordllama, none, or sentence-transformers:NAME.")

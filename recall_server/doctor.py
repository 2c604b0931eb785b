"""The self-check: finds unsafe states of settings, files and database, each told in one line.

`recall doctor` prints them. A server logs warnings, and does not start on a failure.
"""

import math
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from dotenv import dotenv_values
from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from recall_server.application import Application
from recall_server.config import ENV_FILE, LOOPBACK, Settings, is_secret, variable_of
from recall_server.domain.errors import EmbedderUnavailable, RerankerUnavailable, Unsafe
from recall_server.services import metrics
from recall_server.storage.inspection import (
    Finding,
    Level,
    bytes_by_kind,
    free_bytes,
    inspect,
    judged,
    mb,
    space_findings,
)

HOST_NAME = re.compile(r"[0-9a-f:]*:[0-9a-f:.]+|[a-z0-9._-]+", re.ASCII)

# Variables for clients and of the test suite, which are no settings of the server.
_OF_CLIENTS = {"RECALL_URL", "RECALL_TOKEN", "RECALL_TOKEN_FILE"}
_OF_TESTS = "RECALL_TEST_"

# Settings of Camillo and Recall that have no meaning here, and why.
_WIDTH = "here a search compares 100 items, or three for each hit"
_OF_OTHER_SYSTEMS = {
    "RECALL_TOP_K": "of Camillo; here each search says its limit, or top_k at /recall",
    "RECALL_VECTOR_LIMIT": f"of Camillo; {_WIDTH}",
    "RECALL_FULL_TEXT_SEARCH_LIMIT": f"of Camillo; {_WIDTH}",
    "RECALL_CANDIDATE_LIMIT": f"of Camillo; {_WIDTH}",
}
_OTHERS = 0o066
FULL_WARN_DAYS = 30.0

log = structlog.get_logger()


async def examine(built: Application) -> list[Finding]:
    """Run all checks on an open application, whose schema and key are therefore valid."""
    driver = built.store.driver
    async with driver.migration() as connection:
        of_database = await inspect(connection, driver.engine, built.runtime.now())
    return [*of_database, *_files(built.settings), *_settings(built.settings)]


async def secrets(built: Application) -> Finding:
    """Check that stored push secrets can be decrypted. Not run at a start, as it queries each
    namespace.
    """
    sealed = False
    if not built.settings.secret_key:
        for namespace in await built.store.autocommit(None).erasures.namespaces():
            async with built.store.transaction(namespace, write=False) as tx:
                if sealed := await tx.pushes.any_sealed():
                    break
    return judged(
        "push_secrets",
        "the secrets of push can be opened, or there are none",
        warn="there are tokens or credentials for push, and no key that opens them: nothing is "
        "delivered there. Put back RECALL_SECRET_KEY.",
        when=sealed,
    )


async def cuts(built: Application) -> Finding:
    """Check where each audit log begins. Not run at a start, as it queries each namespace."""
    verification = built.services.verification
    faults = [await verification.beginning(one) async for one in verification.namespaces()]
    first = next((fault for fault in faults if fault is not None), None)
    return judged(
        "audit_cuts",
        "each audit log begins where this server has cut it, or with its first record",
        warn=f"{first.message} `recall audit verify` looks at all records." if first else None,
    )


async def vectors(built: Application) -> Finding:
    """Check that all items have a vector of the embedder. Not run at a start, as it reads the index
    of each namespace.
    """
    lacking = 0
    if built.embedder is not None:
        for namespace in await built.store.autocommit(None).erasures.namespaces():
            lacking += await built.services.embedding.lacking(namespace)
    waiting = (await metrics.server_stats(built.store)).backlog.pending_embeddings
    return judged(
        "vectors",
        "what is stored has vectors, or gets them",
        warn=f"about {lacking} items have no vector of this embedder: a search finds them by their "
        "words alone. Run `recall reembed`.",
        when=bool(lacking and not waiting),
    )


async def sizes(built: Application) -> dict[str, metrics.Size]:
    """Return how much disk space each kind of data takes, and how fast it grows. On SQLite this
    reads every page.
    """
    async with built.store.driver.migration() as connection:
        of_kind = await bytes_by_kind(connection, built.store.engine)
    namespaces = built.services.verification.namespaces()
    return await metrics.sizes(built.store, of_kind, namespaces, built.runtime.now())


async def growth(built: Application) -> Finding:
    """Compare the growth of the database with the free space on its disk, if that is known."""
    where = built.settings.database
    free = free_bytes(where) if isinstance(where, Path) else math.inf
    return judged_growth((await sizes(built)).values(), free)


def judged_growth(found: Collection[metrics.Size], free: float) -> Finding:
    """Warn if the `free` bytes of a disk will be used up within `FULL_WARN_DAYS`."""
    size, a_day = sum(one.bytes for one in found), sum(one.bytes_a_day for one in found)
    days = free / a_day if a_day else math.inf
    text = f"the database has {mb(size)}, and grows by {mb(a_day)} a day"
    return judged(
        "growth",
        text,
        warn=f"{text}: its disk is full in {days:.0f} days. Have more space, or keep less: "
        "RECALL_AUDIT_DAYS, RECALL_JOB_DAYS.",
        when=days < FULL_WARN_DAYS,
    )


async def models(built: Application) -> list[Finding]:
    """Load the embedder and the re-ranker as a start does, and ask the embedder for a vector. Not
    run at a start, which loads them itself and goes on without an embedder that does not answer.
    """
    embedder, reranking = built.embedder, built.services.recall.reranking
    findings = []
    if embedder is not None:
        found = Finding("embedder", Level.OK, f"{embedder.model} makes vectors")
        refused = Level.FAIL
        try:
            await embedder.load()
            refused = Level.WARN
            await embedder.embed(["recall"])
        except EmbedderUnavailable as error:
            found = Finding("embedder", refused, error.message)
        findings.append(found)
    if reranking is not None:
        try:
            await reranking.reranker.load()
            findings.append(Finding("reranker", Level.OK, "it is loaded"))
        except RerankerUnavailable as error:
            findings.append(Finding("reranker", Level.FAIL, error.message))
    return findings


async def refuse_unsafe(built: Application) -> None:
    """Log warnings. Raises `Unsafe` with the failures."""
    findings = await examine(built)
    for finding in findings:
        if finding.level is Level.WARN:
            log.warning("unsafe", check=finding.check, text=finding.text)
    if failed := fails(findings):
        raise Unsafe(" ".join(f"{one.check}: {one.text}" for one in failed))


def fails(findings: Sequence[Finding]) -> list[Finding]:
    return [one for one in findings if one.level is Level.FAIL]


def _files(settings: Settings) -> Iterator[Finding]:
    if isinstance(settings.database, Path):
        journal = settings.database.with_name(settings.database.name + "-wal")
        files = [settings.database, *([journal] if journal.exists() else [])]
        yield _file("database_file", settings, *files)
        yield _folder("database_folder", settings.database.resolve().parent)
        yield from space_findings(settings.database)
    yield _file("key_file", settings, settings.key_path)
    yield _folder("key_folder", settings.key_path.resolve().parent)
    if settings.audit_archive is not None:
        yield _archive(settings.audit_archive)
    if settings.card_key_file is not None:
        yield _file("card_key_file", settings, settings.card_key_file)


def _file(check: str, settings: Settings, *paths: Path) -> Finding:
    """Check that only the owner can read or write each file of `paths`."""
    try:
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    except OSError as error:
        return Finding(check, Level.FAIL, f"{error.filename} cannot be read ({error.strerror}).")
    path = max(modes, key=lambda one: modes[one] & _OTHERS)
    mode = modes[path]
    shared = f"others may read or write {path} ({mode:04o}). chmod 600 it"
    return judged(
        check,
        f"{path} is its owner's alone",
        fail=f"everybody may write {path}. chmod 600 it."
        if mode & stat.S_IWOTH
        else f"{shared}, or set RECALL_ALLOW_SHARED_FILES where it must be."
        if not settings.allow_shared_files
        else None,
        warn=f"{shared}.",
        when=bool(mode & _OTHERS),
    )


def _archive(path: Path) -> Finding:
    """Check the folder for archives of the audit log, which the operator must create."""
    if path.is_dir() and os.access(path, os.W_OK | os.X_OK):
        return _folder("audit_archive", path)
    text = f"RECALL_AUDIT_ARCHIVE: {path} is not a folder that this server can write. Make it."
    return Finding("audit_archive", Level.FAIL, text)


def _folder(check: str, path: Path) -> Finding:
    mode = stat.S_IMODE(path.stat().st_mode)
    # In a sticky folder, such as /tmp, nobody can replace another's files.
    anybody = mode & stat.S_IWOTH and not mode & stat.S_ISVTX
    return judged(
        check,
        f"{path} is not everybody's",
        fail=f"everybody may replace what is in {path}. chmod 700 it." if anybody else None,
        warn=f"a group may replace what is in {path} ({mode:04o}). chmod 700 it."
        if mode & stat.S_IWGRP and not mode & stat.S_ISVTX
        else None,
    )


def _hosts(settings: Settings) -> Finding:
    """Check the allowed host names, which may have no scheme, port or pattern."""
    never = [name for name in settings.allowed_hosts if not HOST_NAME.fullmatch(name.lower())]
    accepted = {*LOOPBACK, settings.host, *(name.lower() for name in settings.allowed_hosts)}
    public = urlsplit(settings.public_url or "").hostname
    nameless = settings.public and not settings.allowed_hosts and public is None
    return judged(
        "allowed_hosts",
        "requests are taken by the names that they come with",
        warn=f"RECALL_ALLOWED_HOSTS has {', '.join(never)}, which no request can name: write host "
        "names alone."
        if never
        else f"requests to {public}, of RECALL_PUBLIC_URL, are refused. Add it to "
        "RECALL_ALLOWED_HOSTS."
        if public is not None and public not in accepted
        else f"others reach {settings.host} by a name, and are refused by any. Set "
        "RECALL_ALLOWED_HOSTS to it."
        if nameless
        else None,
    )


def _unknown() -> Finding:
    unknown = unknown_settings()
    return judged(
        "unknown_settings",
        "every variable RECALL_* is a setting",
        warn=f"no setting has the name {', '.join(unknown)}: it changes nothing. Correct it, or "
        "take it out of the environment.",
        when=bool(unknown),
    )


def _settings(settings: Settings) -> Iterator[Finding]:
    yield _unknown()
    yield judged(
        "address",
        f"{settings.host} cannot be reached from elsewhere",
        warn=f"{settings.host} can be reached by others, without TLS: tokens can be read on the "
        "way. Put a TLS proxy before it and listen on 127.0.0.1.",
        when=settings.public,
    )
    yield judged(
        "erasure_file",
        f"erasures are noted in {settings.erasure_path}",
        warn="erasures are noted in the database alone: an old backup of it would be served with "
        "all that was erased since. Set RECALL_ERASURE_FILE.",
        when=settings.erasure_path is None,
    )
    yield _hosts(settings)
    wide = [
        name
        for name in settings.allowed_origins
        if name == "*" or (name.startswith("http://") and "localhost" not in name)
    ]
    yield judged(
        "allowed_origins",
        "web pages are let in by name, and over TLS",
        warn=f"RECALL_ALLOWED_ORIGINS has {', '.join(wide)}: anybody on the way can act as "
        "it. Name https:// origins.",
        when=bool(wide),
    )


def given_variable(name: str, field: FieldInfo) -> str:
    """Return the variable that a setting was taken from: its own, or one of another system."""
    alias, given = field.validation_alias, {**os.environ, **dotenv_values(ENV_FILE)}
    choices = [*map(str, alias.choices)] if isinstance(alias, AliasChoices) else []
    return next((one for one in choices if one in given), variable_of(name, field))


def unknown_settings() -> list[str]:
    """Return the variables of the environment and of `.env` that begin with RECALL_ but have no
    effect; in brackets, what may be meant.
    """
    known = _OF_CLIENTS | _variables()
    names = sorted(
        name
        for name in {**os.environ, **dotenv_values(ENV_FILE)}
        if name.upper().startswith("RECALL_")
        and name.upper() not in known
        and not name.upper().startswith(_OF_TESTS)
    )
    hints = {name: _OF_OTHER_SYSTEMS.get(name.upper()) for name in names}
    for name in names:
        if hints[name] is None and (similar := get_close_matches(name.upper(), known, n=1)):
            hints[name] = f"is {similar[0]} meant?"
    return [f"{name} ({hint})" if hint else name for name, hint in hints.items()]


def settings_of_file() -> list[str]:
    """Return the variables RECALL_* of `.env` that are settings and that the environment does not
    set.
    """
    ours, given = _variables(), {name.upper() for name in os.environ}
    names = {name.upper() for name in dotenv_values(ENV_FILE)}
    return sorted(name for name in names & ours - given if name.startswith("RECALL_"))


def _variables() -> frozenset[str]:
    fields = Settings.model_fields.items()
    files = {f"{variable_of(name, field)}_FILE" for name, field in fields if is_secret(field)}
    return frozenset(files.union(variable_of(name, field) for name, field in fields))

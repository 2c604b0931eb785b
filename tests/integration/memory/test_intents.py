"""A dry run shows what a call does. No two values of a single-valued attribute are active without a
dispute or a decision, whatever is submitted, answered, forgotten and restored.
"""

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recall_server.api.operations.intents import reported
from recall_server.application import Application
from recall_server.domain.attributes import is_single_valued
from recall_server.domain.errors import NotFound, NotRestorable, Stale
from recall_server.domain.ids import Namespace
from recall_server.domain.intents import LANGUAGES, Intent, intended, statement
from recall_server.domain.memory import BELIEVED, Status
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.plan import Add, Choice, Dispute, Forget, Plan, Policy, Settle, Supersede
from recall_server.integrations.rules import language
from recall_server.services.memory.commit import PLANNED_INSIDE_MAX
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Report, Wish
from recall_server.services.tasks.reviews import CONTRADICTIONS
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter
from tests.support.counted import counted
from tests.support.erasure import select
from tests.support.runtime import Clock
from tests.support.transfer import BOB, exported, records, sealed, taken_in

PEOPLE = ("Ana", "Bea")
PLACES = ("Lisbon", "Porto", "Faro")
STEPS = 40


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("Forget that I live in Lisbon.", Intent.FORGET),
        ("please don't remember that I live in Lisbon", Intent.FORGET),
        ("Correction: I live in Porto.", Intent.CORRECT),
        ("Actually, I live in Porto.", Intent.CORRECT),
        ("Never forget that I live in Porto.", Intent.REMEMBER),
        ("Forget-me-nots are my favourite flowers.", Intent.REMEMBER),
        ("I moved from Lisbon to Porto.", Intent.REMEMBER),
        ("Vergiss bitte, dass Ana in Porto wohnt.", Intent.FORGET),
        ("Bitte merk dir nicht, dass Ana in Porto wohnt.", Intent.FORGET),
        ("Korrektur: Ana wohnt in Faro.", Intent.CORRECT),
        ("Nein, Ana wohnt in Faro.", Intent.CORRECT),
        ("Nein danke, sagte Ana.", Intent.REMEMBER),
        ("Olvida que Ana vive en Oporto.", Intent.FORGET),
        ("Por favor, olvídate de que Ana vive en Oporto.", Intent.FORGET),
        ("En realidad, Ana vive en Faro.", Intent.CORRECT),
        ("Nunca olvides que Ana vive en Faro.", Intent.REMEMBER),
        ("Oublie qu'Ana habite à Porto.", Intent.FORGET),
        ("Correction : Ana habite à Faro.", Intent.CORRECT),
        ("En fait, Ana habite à Faro.", Intent.CORRECT),
        ("N'oublie pas qu'Ana habite à Faro.", Intent.REMEMBER),
        ("请忘记小安住在里斯本。", Intent.FORGET),
        ("不要再记住小安住在里斯本。", Intent.FORGET),
        ("更正：小安住在波尔图。", Intent.CORRECT),
        ("忘记带钥匙的人是小安。", Intent.REMEMBER),
        ("忘れてください：アナはリスボンに住んでいます。", Intent.FORGET),
        ("訂正：アナはポルトに住んでいます。", Intent.CORRECT),
        ("忘れないでください。", Intent.REMEMBER),
        ("Forget my phone number.", Intent.FORGET),
        ("Please forget Tom's phone number!", Intent.FORGET),
        ("Forget my phone number, please.", Intent.FORGET),
        ("Forget Dr. Falk’s phone number", Intent.FORGET),
        ("Forget the dentist's address.", Intent.FORGET),
        ("Forget everything about the Porto trip.", Intent.FORGET),
        ("Forget all you know about Tom.", Intent.FORGET),
        ("Don't remember my address.", Intent.FORGET),
        ("Forget the importer, we ship without it.", Intent.REMEMBER),
        ("Forget our importer, we ship without it.", Intent.REMEMBER),
        ("Forget everything, we start anew.", Intent.REMEMBER),
        ("Forget what's written there.", Intent.REMEMBER),
        ("Don't forget my phone number.", Intent.REMEMBER),
        ("I don't remember my address.", Intent.REMEMBER),
        ("Vergiss meine Telefonnummer.", Intent.FORGET),
        ("Vergiss bitte Toms Telefonnummer.", Intent.FORGET),
        ("Vergiss die Telefonnummer von Tom.", Intent.FORGET),
        ("Vergiss alles über die Reise nach Porto.", Intent.FORGET),
        ("Merk dir nicht meine Adresse.", Intent.FORGET),
        ("Vergiss den Importer, wir liefern ohne ihn.", Intent.REMEMBER),
        ("Vergiss nicht meine Telefonnummer.", Intent.REMEMBER),
        ("Olvida mi número de teléfono.", Intent.FORGET),
        ("Olvida el número de teléfono de Tom.", Intent.FORGET),
        ("Olvida todo sobre el viaje a Oporto.", Intent.FORGET),
        ("No recuerdes mi dirección.", Intent.FORGET),
        ("No olvides mi número de teléfono.", Intent.REMEMBER),
        ("Oublie mon numéro de téléphone.", Intent.FORGET),
        ("Oublie l'adresse de Tom.", Intent.FORGET),
        ("Oublie le numéro d'Ana.", Intent.FORGET),
        ("Oublie tout sur le voyage à Porto.", Intent.FORGET),
        ("Ne retiens pas mon adresse.", Intent.FORGET),
        ("N'oublie pas mon adresse.", Intent.REMEMBER),
    ],
)
def test_auto_is_decided_by_the_first_words(text: str, intent: Intent) -> None:
    assert intended(Intent.AUTO, text, "") is intent
    said = statement(intent, text)
    assert said in text
    assert (said == text) == (intent is Intent.REMEMBER)


def test_the_openings_know_the_languages_of_extraction() -> None:
    assert set(LANGUAGES) == set(language.LANGUAGES)


@pytest.mark.parametrize("seed", range(2))
async def test_a_dry_run_shows_what_is_done_and_nothing_contradicts_unmarked(
    open_app: Open, clock: Clock, seed: int
) -> None:
    drawn, seen = random.Random(seed), Counter[str]()
    async with open_app() as application:
        await enter(application)
        await application.services.tasks.set_policy(context(application), Policy.ASK)
        for _ in range(STEPS):
            clock.pass_(timedelta(minutes=1))
            before = await _statuses(application)
            plan = await _step(application, drawn, seen)
            after = await _statuses(application)
            if plan is not None:
                assert after == await _settled(application, _applied(before, plan))
            await _check_contradictions(application)
    assert min(seen[one] for one in ("submitted", "disputed", "answer")) > 0, seen


async def _step(application: Application, drawn: random.Random, seen: Counter[str]) -> Plan | None:
    """Make one change, and return the plan if it was a submission."""
    services = application.services
    kind = drawn.choice(["submit"] * 5 + ["policy", "answer", "forget", "restore"])
    ids = sorted(await _statuses(application)) or ["mem_none"]
    try:
        match kind:
            case "submit":
                plan = await _submit(application, drawn, ids)
                seen["submitted"] += 1
                seen.update(plan.counts())
                return plan
            case "policy":
                policy = drawn.choice([None, *Policy, *[Policy.ASK] * 4])
                await services.tasks.set_policy(context(application), policy)
            case "answer":
                waiting = await services.reviews.waiting(
                    context(application), CONTRADICTIONS, limit=10
                )
                if waiting:
                    choice = drawn.choice(list(Choice))
                    text = "They live somewhere." if choice is Choice.MERGE else None
                    one = drawn.choice(waiting)
                    await services.reviews.answer(context(application), one.id, choice, text)
            case "forget":
                await services.recall.forget(context(application), drawn.choice(ids))
            case "restore":
                await services.recall.restore(context(application), drawn.choice(ids))
    except (NotFound, NotRestorable, Stale):
        return None
    seen[kind] += 1
    return None


async def _submit(application: Application, drawn: random.Random, ids: list[str]) -> Plan:
    """Submit something after a dry run, and return the plan that was applied."""
    text = f"{drawn.choice(PEOPLE)} lives in {drawn.choice(PLACES)}."
    intent = drawn.choice([Intent.REMEMBER] * 3 + [Intent.CORRECT, Intent.FORGET])
    named = drawn.choice(ids) if intent is not Intent.REMEMBER and drawn.random() < 0.5 else ""
    wish = Wish(intent, Submission(text, "home"), named)
    intents = application.services.intents
    shown = await intents.submit(context(application), replace(wish, dry_run=True))
    done = await intents.submit(context(application), wish)
    assert _outline(shown) == _outline(done)
    return done.plan


def _outline(report: Report) -> list[Any]:
    """Return what a report says, without ids that a dry run cannot know."""
    told = reported(report)
    known = {one["memory_id"] for one in told["considered"]}
    known |= {one["memory_id"] for rule in told["rules"] for one in rule["against"]}
    changes = [
        {
            name: [one for one in value if one in known] if isinstance(value, list) else value
            for name, value in change.items()
            if name in ("change", "text", "with") or value in known
        }
        for change in told["changes"]
    ]
    return [told["outcome"], changes, told["rules"], told["considered"]]


async def _statuses(application: Application) -> dict[str, str]:
    rows = await select(application.store, "SELECT id, status FROM memories", ALICE)
    return {row["id"]: row["status"] for row in rows}


def _applied(statuses: dict[str, str], plan: Plan) -> dict[str, str]:
    """Return the states of memories after a plan is applied."""
    after = dict(statuses)
    for change in plan.changes:
        match change:
            case Add(memory):
                after[memory.id] = memory.status
            case Supersede(memory_id):
                after[memory_id] = Status.SUPERSEDED
            case Forget(memory_id):
                after[memory_id] = Status.FORGOTTEN
            case Dispute(_, memory_id, existing):
                after |= dict.fromkeys((memory_id, *existing), Status.DISPUTED)
            case Settle():
                raise AssertionError(change)
    return after


async def _settled(application: Application, statuses: dict[str, str]) -> dict[str, str]:
    """Return the states, with disputed memories active if their dispute is gone."""
    still = {one for sides in (await _open(application)).values() for one in sides}
    return {
        one: Status.ACTIVE if status == Status.DISPUTED and one not in still else status
        for one, status in statuses.items()
    }


async def _open(application: Application) -> dict[str, set[str]]:
    rows = await select(
        application.store, "SELECT question_id, memory_id FROM disputes WHERE closed_at IS NULL"
    )
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["question_id"], set()).add(row["memory_id"])
    return found


async def _check_contradictions(application: Application) -> None:
    """Check that two active values are in one dispute, or were both kept by a decision."""
    disputes = (await _open(application)).values()
    rows = await select(application.store, "SELECT memory_id, question_id, choice FROM decisions")
    kept = {
        frozenset(one["memory_id"] for one in rows if one["question_id"] == row["question_id"])
        for row in rows
        if row["choice"] == Choice.KEEP_BOTH
    }
    facts = await select(
        application.store,
        "SELECT id, status, entity_key, attribute, value_key FROM memories"
        " WHERE retired_at IS NULL AND entity_key IS NOT NULL",
    )
    for one in facts:
        in_dispute = any(one["id"] in sides for sides in disputes)
        assert (one["status"] == Status.DISPUTED) == in_dispute
        assert one["status"] in BELIEVED
        for other in facts:
            same = (one["entity_key"], one["attribute"]) == (
                other["entity_key"],
                other["attribute"],
            )
            if (
                same
                and one["value_key"] < other["value_key"]
                and is_single_valued(one["attribute"])
            ):
                pair = {one["id"], other["id"]}
                both = [*disputes, *kept]
                assert any(pair <= together for together in both), (one, other)


async def _believed(application: Application, namespace: Namespace) -> dict[str, str]:
    sql = (
        f"SELECT text, status FROM memories WHERE retired_at IS NULL AND namespace = '{namespace}'"
    )
    return {row["text"]: row["status"] for row in await select(application.store, sql, namespace)}


async def test_what_is_imported_is_settled_with_what_is_known_there(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        for namespace, place in ((ALICE, "Lisbon"), (BOB, "Porto")):
            await enter(application, namespace)
            wish = Wish(Intent.REMEMBER, Submission(f"Ana lives in {place}.", "home"))
            await application.services.intents.submit(context(application, namespace), wish)
            await drained(application)
            clock.pass_(timedelta(hours=1))
        file = await exported(application)

        await taken_in(application, file, BOB)
        await taken_in(application, file, BOB)

        # Bob said this later.
        assert await _believed(application, BOB) == {"Ana lives in Porto.": "active"}

        carla = await _asking(application)
        await taken_in(application, file, carla)
        assert await _believed(application, carla) == {
            "Ana lives in Lisbon.": "disputed",
            "Ana lives in Porto.": "disputed",
        }
        copied = await exported(application, carla)
        assert {line["status"] for line in records(copied, "memory")} == {"disputed"}


async def _asking(application: Application) -> Namespace:
    carla = Namespace("carla")
    await enter(application, carla)
    await application.services.tasks.set_policy(context(application, carla), Policy.ASK)
    wish = Wish(Intent.REMEMBER, Submission("Ana lives in Porto.", "home"))
    await application.services.intents.submit(context(application, carla), wish)
    return carla


async def test_half_a_dispute_in_a_file_asks_nothing(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await application.services.tasks.set_policy(context(application), Policy.ASK)
        for place in ("Lisbon", "Porto"):
            wish = Wish(Intent.REMEMBER, Submission(f"Ana lives in {place}.", "home"))
            await application.services.intents.submit(context(application), wish)
        lines = records(await exported(application))
        (first, second) = [one for one in lines if one["kind"] == "memory"]
        half = sealed(*(one for one in lines if one["kind"] != "end" and one is not second))

        await taken_in(application, half, BOB)

        assert await _believed(application, BOB) == {first["text"]: "active"}


STATE = """
SELECT id, status, superseded_by, valid_until, retired_at FROM memories
WHERE status <> 'forgotten' ORDER BY id;
SELECT question_id, memory_id, side FROM disputes WHERE closed_at IS NULL
ORDER BY question_id, memory_id;
SELECT item_id FROM documents WHERE findable ORDER BY item_id
"""
TOLD = (
    (Intent.REMEMBER, "Ana lives in Lisbon."),
    (Intent.REMEMBER, "Ana lives in Porto."),
    (None, Choice.KEEP_NEW),
    (Intent.CORRECT, "Ana lives in Faro."),
    (Intent.FORGET, "Ana lives in Faro."),
)


async def _state(application: Application) -> list[list[tuple[Any, ...]]]:
    await drained(application)
    return [
        [tuple(dict(row).values()) for row in await select(application.store, query)]
        for query in STATE.split(";")
    ]


async def test_what_is_submitted_disputed_and_answered_is_undone_exactly(
    open_app: Open, clock: Clock
) -> None:
    """Each undo is undone exactly, too."""
    async with open_app() as application:
        services = application.services
        await enter(application)
        await services.tasks.set_policy(context(application), Policy.ASK)
        states, done = [await _state(application)], []
        for intent, told in TOLD:
            call = context(application)
            if intent is None:
                (one,) = await services.reviews.waiting(call, CONTRADICTIONS, limit=9)
                await services.reviews.answer(call, one.id, Choice(told))
            else:
                await services.intents.submit(call, Wish(intent, Submission(told, "home")))
            states.append(await _state(application))
            done.append(call.entry.change)
            clock.pass_(timedelta(minutes=1))

        async def undo(change_id: str | None) -> str | None:
            assert change_id is not None
            undone = await services.changes.undo(
                context(application),
                change_id,
                rights=OPERATOR,
                dry_run=False,
                with_dependents=False,
            )
            clock.pass_(timedelta(minutes=1))
            return undone.change_id

        for change in reversed(done):
            after = states.pop()
            undone = await undo(change)
            assert await _state(application) == states[-1], change
            again = await undo(undone)
            assert await _state(application) == after, change
            await undo(again)
            assert await _state(application) == states[-1], change


async def test_what_is_remembered_is_planned_before_others_wait(open_app: Open) -> None:
    """On SQLite the writers of all tenants wait for its transaction."""
    asked = []
    async with open_app() as application:
        await enter(application)
        for who, many in (("Ann", 40), ("Bea", 120)):
            figs = (f"I like fig{chr(97 + n % 26)}{chr(97 + n // 26)}." for n in range(many))
            wish = Wish(Intent.REMEMBER, Submission(f"{who}: {' '.join(figs)}", "life"))
            with counted(application) as counts:
                report = await application.services.intents.submit(context(application), wish)
            asked.append((len(report.plan.changes), counts.fetches[True]))
    (few, fetches), (more, still) = asked
    assert PLANNED_INSIDE_MAX < few < more / 2
    assert still <= fetches

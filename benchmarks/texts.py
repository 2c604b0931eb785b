"""Seeded texts: statements that share most of their words, and questions about them."""

import random


def _words(text: str) -> list[str]:
    return text.split()


_NAMES = _words(
    "Alice Ben Carla David Elena Farid Grace Hiro Ines Jonas Kira Liam Mona Noor Oskar Priya Quinn "
    "Rosa Stefan Tara Umar Vera Wendy Xavier Yusuf Zoe"
)
_TEAMS = _words(
    "platform payments search mobile growth billing security data onboarding support research "
    "infrastructure"
)
_TOOLS = _words(
    "Postgres SQLite Redis Kafka Terraform Ansible Docker Grafana Prometheus Django FastAPI React "
    "Svelte Kotlin Rust Go Elixir Figma Notion Linear Slack Zoom Bazel Nix Airflow Spark"
)
_PLACES = _words(
    "Berlin Lisbon Oslo Porto Kyoto Lima Austin Dublin Prague Turin Ghent Leeds Malmo Tartu Quito "
    "Hanoi Accra Perth Bergen Basel"
)
_THINGS = _words(
    "espresso oolong sourdough ramen climbing sailing chess pottery astronomy gardening cycling "
    "violin karate origami beekeeping fencing squash bouldering calligraphy drumming"
)
_MONTHS = _words("January February March April May June July August September October November")

_STATEMENTS = (
    "{name} from the {team} team prefers {tool} over {other} for ticket {number}.",
    "{name} moved from {place} to {town} in {month} with badge {number}.",
    "The {team} team decided to deploy {tool} on cluster {number} in {month}.",
    "{name} likes {thing} and met {friend} at the {thing} club in {place}, locker {number}.",
    "To release build {number} the {team} team runs {tool} before {other}.",
    "{name} reports to {friend} in {place} since {month}, room {number}.",
    "The deadline of project {number} of the {team} team is in {month}, says {name}.",
    "{name} never uses {tool} on Mondays because incident {number} broke {other} in {place}.",
)
_TURNS = (
    "User: My favourite {thing} teacher in {place} is {name}, course {number}.",
    "User: I use {tool} for job {number} now, not {other}.",
    "User: {name} of the {team} team works in {place}, desk {number}.",
    "Assistant: Good to know. Shall I keep that for {month}?",
    "User: We decided to move service {number} from {other} to {tool} in {month}.",
)
# Each makes one memory, about a person that no other memory is about.
_FACTS = (
    "User: {name}{number} lives in {place}.",
    "User: {name}{number} likes {thing}.",
    "User: {name}{number} works in the {team} team.",
    "{name}{number}: I live in {town}.",
)
_QUESTIONS = (
    "Which database does {name} prefer for the {team} team?",
    "Where did {name} move in {month}?",
    "What did the {team} team decide about {tool}?",
    "Who likes {thing} in {place}?",
    "When is the deadline of the {team} project?",
)


class Texts:
    """The same texts for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # nothing here is a secret
        self._number = 1000

    def statement(self) -> str:
        """Return a sentence of no other call: its number is its own, the rest is shared."""
        self._number += 1
        return self._filled(_STATEMENTS)

    def conversation(self) -> str:
        """Return a few turns, as a client would store them."""
        self._number += 1
        return "\n".join(self._filled(_TURNS) for _ in range(3))

    def fact(self) -> str:
        """Return one sentence to remember, which contradicts nothing."""
        self._number += 1
        return self._filled(_FACTS)

    def question(self) -> str:
        return self._filled(_QUESTIONS)

    def statements(self, count: int) -> list[str]:
        return [self.statement() for _ in range(count)]

    def _filled(self, templates: tuple[str, ...]) -> str:
        choose = self._random.choice
        name, friend = self._random.sample(_NAMES, 2)
        tool, other = self._random.sample(_TOOLS, 2)
        place, town = self._random.sample(_PLACES, 2)
        return choose(templates).format(
            name=name,
            friend=friend,
            tool=tool,
            other=other,
            place=place,
            town=town,
            team=choose(_TEAMS),
            thing=choose(_THINGS),
            month=choose(_MONTHS),
            number=self._number,
        )

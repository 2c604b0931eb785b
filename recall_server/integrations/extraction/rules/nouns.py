"""The nouns that decide what a statement is about: people, animals, occupations, technologies."""

from __future__ import annotations

import re

from recall_server.integrations.extraction.rules.verbs import word_set

CHILDREN = word_set(
    "son daughter kid kids child children baby twins boy girl sons daughters stepson "
    "stepdaughter toddler newborn triplets"
)
SIBLINGS = word_set("brother sister brothers sisters sibling siblings")
RELATIVES = word_set(
    "wife husband partner girlfriend boyfriend fiance fiancee fiancé fiancée spouse mother "
    "father mom mum dad parents grandmother grandfather grandma grandpa grandparents aunt "
    "uncle cousin cousins niece nephew nieces nephews family in-laws"
)
PEOPLE = (
    CHILDREN
    | SIBLINGS
    | RELATIVES
    | word_set(
        "friend friends boss manager colleague colleagues coworker coworkers teammate roommate "
        "flatmate neighbor neighbour mentor mentee therapist doctor teacher coach client clients "
        "customer team company employer startup landlord tenant assistant intern lead director "
        "ceo cto group band teammates roommates flatmates housemate neighbors neighbours "
        "cofounder grandson granddaughter grandchildren grandkids godson goddaughter ex buddy mate "
        "mates sister-in-law brother-in-law mother-in-law father-in-law son-in-law daughter-in-law"
    )
)
AT_WORK = word_set(
    "boss manager client clients customer team company employer startup lead director ceo cto"
)
PETS = word_set(
    "dog dogs cat cats puppy puppies kitten kittens parrot hamster rabbit bunny turtle "
    "turtles tortoise horse goldfish fish snake lizard gecko ferret bird birds chicken "
    "chickens pup pet pets rabbits horses guinea labrador retriever beagle poodle corgi"
)
POSSESSIONS = word_set(
    "house flat apartment car truck bike bicycle motorcycle motorbike boat cabin piano guitar "
    "laptop macbook phone iphone garden farm shop store business company studio restaurant "
    "bakery van camera telescope condo cottage degree license licence visa passport "
    "certificate podcast blog channel website violin ukulele drone collection thinkpad"
)
PRIVATE = word_set(
    "honeymoon wedding house home apartment flat garden kitchen car holiday vacation trip baby "
    "anniversary marriage mortgage bedroom landlord street village parents dinner"
)
CONDITIONS = word_set(
    "asthma diabetes adhd arthritis migraines insomnia anxiety depression epilepsy celiac "
    "coeliac dyslexia hypertension cancer eczema autism"
)
DIETS = re.compile(
    r"(?:a |an )?(?:strict )?(?P<value>vegan|vegetarian|pescatarian|gluten[- ]free|keto"
    r"|lactose[- ]intolerant|halal|kosher|teetotal\w*)\b",
    re.IGNORECASE,
)
STATUSES = re.compile(
    r"(?:currently |happily |newly |recently |still )*(?P<value>single|married|divorced|engaged"
    r"|widowed|separated)\b(?! (?:to|in|with) (?:the|my work))",
    re.IGNORECASE,
)
_OCCUPATION = re.compile(
    r"\b(?:[a-z]{2,}(?:eer|grapher|ologist|ician|yst|wright|smith)|(?:soft|data|web|front|back"
    r"|full)\S*"
    r"|nurse|doctor|teacher|lawyer|attorney|accountant|architect|designer|developer|programmer"
    r"|manager"
    r"|director|writer|author|editor|journalist|reporter|chef|cook|baker|barista|waiter|waitress"
    r"|bartender|pilot|driver|farmer|plumber|electrician|carpenter|mechanic|builder|painter|artist"
    r"|musician|singer|dancer|actor|actress|model|student|professor|lecturer|researcher|scientist"
    r"|consultant|analyst|administrator|sysadmin|sre|devops|intern|apprentice|freelancer|contractor"
    r"|founder|co-founder|cofounder|ceo|cto|cfo|lead|maintainer|tester|recruiter|salesperson|banker"
    r"|trader|broker|economist|statistician|dentist|surgeon|vet|veterinarian|pharmacist|therapist"
    r"|counselor|counsellor|psychologist|psychiatrist|paramedic|firefighter|soldier|officer|judge"
    r"|translator|interpreter|librarian|tutor|coach|trainer|instructor|curator|producer|gamer"
    r"|stylist|hairdresser|barber|tailor|florist|realtor|secretary|assistant|clerk|cashier|owner"
    r"|postdoc|undergraduate|postgraduate|sophomore|freshman|veteran|nanny|guide|streamer)s?\b",
    re.IGNORECASE,
)
EVENTS = re.compile(
    r"\b(?:class|course|lesson|workshop|seminar|webinar|lecture|talk|meeting|meetup|conference"
    r"|convention|summit|concert|gig|festival|parade|party|wedding|funeral|ceremony|reception"
    r"|reading"
    r"|show|play|opera|musical|match|game|race|tournament|competition|event|reunion|fair|rally"
    r"|march"
    r"|protest|retreat|camp|group|session|service|picnic|barbecue|bbq|dinner|gala|fundraiser"
    r"|auction"
    r"|interview|audition|appointment|exhibition|screening|premiere|launch|hackathon|demo|training"
    r"|rehearsal|birthday|graduation|baby shower|potluck)s?\b(?! (?:store|shop|room|hall|park)\b)",
    re.IGNORECASE,
)
SHARED = re.compile(
    r"\b(?:budget|standup|stand-up|team|sprint|ci|api|release|deploy\w*|server|database|cluster"
    r"|repo|codebase"
    r"|backend|frontend|pipeline|customers?|clients?|office|service|stack|retro|roadmap|product"
    r"|app|staging"
    r"|production|domain|license|vendor|provider|on-call|monitoring|infra\w*|policy|convention"
    r"|default"
    r"|branch|environment|schema|sla|slo|kpi|okr|launch|deadline|milestone|process|workflow)\b",
    re.IGNORECASE,
)
ROLE = re.compile(
    r"(?:on-call|on call|tech(?:nical)? lead|team lead|lead|head|owner|maintainer|manager|point of"
    r" contact|product|project|release|scrum|engineering|new|main|primary|ceo|cto|cfo|coo|director"
    r"|chair|president|captain|director|founder)\b",
    re.IGNORECASE,
)

_CATEGORIES = {
    "database": "postgres postgresql mysql mariadb sqlite mongodb mongo oracle cockroachdb dynamodb"
    " cassandra redis-db firestore supabase duckdb clickhouse snowflake bigquery",
    "cache": "redis memcached valkey",
    "message_queue": "kafka rabbitmq sqs nats pulsar celery",
    "search_engine": "elasticsearch opensearch meilisearch solr typesense",
    "editor": "vim neovim emacs vscode pycharm intellij sublime helix zed nano webstorm cursor",
    "web_framework": "fastapi django flask rails express nestjs spring laravel starlette",
    "frontend_framework": "react vue svelte angular solidjs next.js nuxt nextjs",
    "ci": "jenkins circleci travis buildkite teamcity drone",
    "cloud": "aws gcp azure heroku digitalocean hetzner netlify vercel fly.io linode",
    "orchestration": "kubernetes nomad k8s ecs openshift",
    "infrastructure_as_code": "terraform pulumi ansible cloudformation opentofu",
    "package_manager": "npm yarn pnpm pip poetry uv conda bun pdm",
    "issue_tracker": "jira linear asana trello clickup youtrack shortcut basecamp",
    "chat_tool": "slack discord mattermost zulip",
    "indentation": "tabs spaces",
    "programming_language": "python rust golang java kotlin typescript javascript ruby elixir scala"
    " haskell swift c++ c# php perl clojure",
    "test_framework": "pytest unittest jest vitest mocha cypress playwright selenium",
    "linter": "ruff flake8 pylint eslint biome",
    "operating_system": "linux macos windows ubuntu debian fedora arch nixos",
    "browser": "firefox chrome safari brave edge",
    "monitoring": "datadog grafana prometheus sentry newrelic honeycomb",
    "shell": "zsh bash fish powershell",
    "drink": "coffee tea espresso cocoa",
}
_PHRASES = {
    "dark mode": "theme", "light mode": "theme", "dark theme": "theme", "light theme": "theme",
    "github actions": "ci", "gitlab ci": "ci", "google cloud": "cloud", "vs code": "editor",
    "visual studio code": "editor", "google meet": "video_calls", "zoom": "video_calls",
    "microsoft teams": "chat_tool", "ms teams": "chat_tool", "new relic": "monitoring",
    "fly.io": "cloud", "sql server": "database", "rest": "api_style", "graphql": "api_style",
    "grpc": "api_style", "monorepo": "repository_layout",
    "tailwind": "css_framework", "bootstrap": "css_framework", "window seat": "seat",
    "aisle seat": "seat", "aisle seats": "seat", "window seats": "seat",
    "metric units": "units",
    "imperial units": "units", "celsius": "units", "fahrenheit": "units",
}  # fmt: skip
CATEGORY = {word: name for name, words in _CATEGORIES.items() for word in words.split()} | _PHRASES


def category(value: str) -> str | None:
    """What kind of choice a value is: "Postgres 15" is a database; None where nobody knows."""
    plain = re.sub(r"^(?:the|an?|our|my) ", "", value.lower().strip(" .,"))
    if plain in CATEGORY:
        return CATEGORY[plain]
    words = plain.split()
    if words and len(words) <= 3 and re.fullmatch(r"v?[\d.]+|lts|postgres|server", words[-1]):
        return CATEGORY.get(words[0])
    return None


def is_occupation(phrase: str) -> bool:
    """Whether a noun phrase names work that a person does."""
    return _OCCUPATION.search(phrase) is not None

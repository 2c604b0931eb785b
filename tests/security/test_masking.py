"""Secrets are overwritten in every stored string, also in disguise."""

import base64
import time

import pytest

from recall_server.api.operations import tasks
from recall_server.integrations.redaction import redacted
from recall_server.services.auth import new_token
from tests.support.a2a_bindings import Wire, message
from tests.support.server import Json, Running, Serve
from tests.support.tables import TENANT_TABLES

PAT = "ghp_v3NLUS59VeaQ4tZb7Yc1Xk8Rm2Wp6Td0HsJf"
TOKEN = new_token()
PEM = "\n".join(
    (
        "-----BEGIN RSA PRIVATE KEY-----",
        *(
            base64.b64encode(bytes((7 * n + line) % 256 for n in range(48))).decode()
            for line in range(9)
        ),
        "-----END RSA PRIVATE KEY-----",
    )
)
WORD = "Hunter22x"
LONG_KEY = "-----BEGIN PRIVATE KEY-----\n" + 300 * f"{PEM[40:80]}\n"

# Each secret, with the part that must not be left. The page on hostile text lists these.
DISGUISED: dict[str, tuple[str, str]] = {
    "a token of ours": (TOKEN, TOKEN[4:20]),
    "in the middle of a word": (f"mytoken{TOKEN}", TOKEN[4:20]),
    "behind an underscore": (f"x_{TOKEN}", TOKEN[4:20]),
    "in an address": (f"https://a.example/?t=rcl%5F{TOKEN[4:]}", TOKEN[4:20]),
    "over two lines": (f"{TOKEN[:20]}\n{TOKEN[20:]}", TOKEN[4:20]),
    "over two quoted lines": (f"> {TOKEN[:20]}\r\n> {TOKEN[20:]}", TOKEN[4:20]),
    "with a soft hyphen": (f"{TOKEN[:9]}\u00ad{TOKEN[9:]}", TOKEN[9:30]),
    "a key with a blank of no width": (f"{PAT[:9]}\u200b{PAT[9:]}", PAT[9:30]),
    "full width": (f"ｐａｓｓｗｏｒｄ： {WORD}", WORD),
    "English": (f"The password is {WORD}", WORD),
    "German": (f"Das Passwort lautet {WORD}", WORD),
    "French": (f"le mot de passe est {WORD}", WORD),
    "Spanish": (f"la contraseña es {WORD}", WORD),
    "Portuguese": (f"senha: {WORD}", WORD),
    "Dutch": (f"wachtwoord: {WORD}", WORD),
    "Russian": (f"пароль: {WORD}", WORD),
    "Russian with a dash": (f"Мой пароль - {WORD}", WORD),
    "Chinese": (f"密码：{WORD}", WORD),
    "a passphrase": ("passphrase: correct horse battery staple", "horse"),
    "a passphrase with hyphens": ("Passphrase = correct-horse-battery-staple", "horse"),
    "a PIN": ("My PIN is 4821.", "4821"),
    "a PIN code": ("pin code: 992133", "992133"),
    "a PIN in Russian": ("пин-код: 4821", "4821"),
    "an @ in the password of an address": (f"postgres://svc:p@{WORD}@db.internal/app", WORD),
    "base64": (base64.b64encode(PAT.encode()).decode(), "Z2hwX3Yz"),
    "base64 for addresses": (base64.urlsafe_b64encode(f"?a={TOKEN}".encode()).decode(), "cmNsX"),
    "base64 of a token": (f"see {base64.b64encode(TOKEN.encode()).decode()}", "cmNsX"),
    "base64 of a key": (base64.b64encode(PEM.encode()).decode(), "LS0tLS1CRUdJTi"),
    "base64 of a key in lines": (base64.encodebytes(PEM.encode()).decode(), "LS0tLS1CRUdJTi"),
    "hexadecimal": (TOKEN.encode().hex(), TOKEN[4:20].encode().hex()),
    "a private key": (PEM, PEM[40:80]),
    "a private key without its end": (PEM[:300], PEM[40:80]),
    "a key of more lines than others have": (LONG_KEY, PEM[40:80]),
}

TALK = """
My password is safe with me.
The passphrase is stored in the safe at home.
I forgot my PIN again, and the bank wants 12 euros.
Pin the note to the board, please.
The PIN of the card is four digits long.
Passphrase: ask Lena.
Das Passwort ist mir entfallen.
Ich habe das Passwort vergessen: schon wieder.
Пароль я забыл.
密码我忘记了。
The prefix rcl_ stands for tokens of this server, with thirty-eight characters behind it.
See rcl_ABCDEFGHIJKLMNOPQRSTUVWXYZ and so on.
Commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 broke it.
https://example.com/a/very/long/path/that-goes-on/and-on/and-on/without-any-secret-in-it-at-all
The image is iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk.
""".strip().splitlines()


@pytest.mark.parametrize("name", DISGUISED)
def test_a_secret_is_found_in_disguise(name: str) -> None:
    text, secret = DISGUISED[name]
    (masked,), count = redacted([f"Ana: so it goes, {text}\nBob: thanks!"])

    assert secret in text
    assert secret not in masked
    assert count == 1
    assert masked.startswith("Ana: so it goes, ")
    assert masked.endswith("Bob: thanks!")


@pytest.mark.parametrize("text", TALK)
def test_talk_about_secrets_stays_as_it_is(text: str) -> None:
    assert redacted([text]) == ([text], 0)


def test_a_secret_over_two_parts_is_written_over_in_both() -> None:
    parts, count = redacted(["My password:", "\n", f"{WORD} and", "\n", f"{PEM[:90]}", PEM[90:]])

    assert parts == [
        "My password:",
        "\n",
        "[secret: password] and",
        "\n",
        *["[secret: private key]"] * 2,
    ]
    assert count == 2


@pytest.mark.perf
@pytest.mark.parametrize(
    "unit",
    [
        "rcl_",
        f"rcl_{'a1' * 19} ",
        "password: ",
        "AAAA ",
        "SGFsbG8g",
        "\u00ad",
        "ｐ",
        "a ",
        "pin 1",
        "4a",
    ],
)
def test_masking_takes_four_times_as_long_for_four_times_the_text(unit: str) -> None:
    def seconds(chars: int) -> float:
        text = (unit * chars)[:chars]
        taken = []
        for _ in range(3):
            started = time.process_time()
            redacted([text])
            taken.append(time.process_time() - started)
        return min(taken)

    redacted(["the rules are loaded"])
    # Quadratic time would be 16 times as long. The minimum hides the resolution of the clock.
    assert seconds(32_000) <= 10 * max(seconds(8_000), 0.002)


STRINGS = (
    *("topic", "session_id", "agent_id", "idempotency_key", "app", "model", "description"),
    *("trace_id", "tag", "name", "role", "value", "of_list", "words", "task_topic"),
    *("task_session", "messageId", "contextId", "data", "part", "metadata", "meta_key"),
)


async def kept(running: Running, namespace: str) -> str:
    """Return all rows of a namespace."""
    await running.application.services.audit.reads.flush()
    store, found = running.application.store, []
    named = ":namespace" if store.engine == "sqlite" else "%(namespace)s"
    async with store.driver.transaction(namespace=namespace, write=False) as raw:
        for table in sorted(TENANT_TABLES):
            query = f"SELECT * FROM {table} WHERE namespace = {named}"
            found += [repr(dict(row)) for row in await raw.fetch(query, {"namespace": namespace})]
    return "\n".join(found).replace("\\\\", "\\").replace("\\n", "\n")


async def test_no_string_of_a_call_is_kept_with_a_secret_in_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strings are labels, keys, tags, names and values, of texts and of messages of A2A. The
    positive control: without masking, all of them are stored.
    """
    monkeypatch.setattr(tasks, "WAIT_S", 0.0)
    strings = {
        name: f"ghp_{number:02}NLUS59VeaQ4tZb7Yc1Xk8Rm2Wp6Td0Hs{number:02}"
        for number, name in enumerate(STRINGS)
    }
    for masked in (False, True):
        async with serve(mask_secrets=masked) as running:
            namespace = f"masked-{masked}".lower()
            async with running.http(await running.token(namespace)) as http:
                given: Json = {key: strings[key] for key in ("topic", "session_id", "agent_id")}
                given |= {key: strings[key] for key in ("idempotency_key", "trace_id")}
                given["source"] = {key: strings[key] for key in ("app", "model", "description")}
                given["tags"] = [strings["tag"]]
                given["metadata"] = {strings["meta_key"]: {"a": strings["value"]},
                                     "b": [1, strings["of_list"]], "password": WORD}  # fmt: skip
                said = {
                    "role": strings["role"],
                    "name": strings["name"],
                    "content": strings["words"],
                }
                given["messages"] = [said]
                for _ in range(2):
                    stored = await http.post("/v1/memories", json=given)
                    assert stored.status_code == 202, stored.text
                assert stored.json()["cached"]
                parts = [{"text": "Ana: my password:"}, {"text": WORD}, {"text": PEM[:90]},
                         {"text": PEM[90:]}, {"text": strings["part"]}]  # fmt: skip
                metadata = {"topic": strings["task_topic"], strings["metadata"]: strings["data"]}
                metadata["session_id"] = strings["task_session"]
                sent = message(*parts, metadata=metadata, contextId=strings["contextId"],
                               messageId=strings["messageId"])  # fmt: skip
                await Wire(http).result(
                    "SendMessage", message=sent, configuration={"returnImmediately": True}
                )
                await running.extract()
                text = await kept(running, namespace)
                left = {name for name, secret in strings.items() if secret in text}
                left |= {one for one in (WORD, PEM[40:80], PEM[-90:-50]) if one in text}
                if masked:
                    assert left == set()
                    refused = await http.post("/v1/memories", json={"text": "x", "container": PAT})
                    assert refused.status_code == 400
                else:
                    # Metadata that the skill does not read is not stored.
                    assert left >= set(strings) - {"metadata", "data"}

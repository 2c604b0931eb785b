"""A webhook reaches public and allowed addresses, and no other, whatever it is told."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from recall_server.domain.errors import Invalid, PushFailed, PushUrlRefused
from recall_server.integrations.webhook import Answer, Exempt, Resolver, Webhook, is_public
from tests.support.models import Manner, Reply
from tests.support.receivers import OK, Receiver, loopback
from tests.support.server import WITHIN_S
from tests.support.stalls import readers_of_certificates, watched

PUBLIC = ["93.184.216.34", "1.1.1.1", "172.15.0.1", "100.63.255.255", "2606:4700::1111"]
PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "168.63.129.16",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.8",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b:1::7f00:1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
]

GOOD_URLS = [
    "https://hooks.test",
    "https://hooks.test/",
    "https://hooks.test:443/a/b?c=d&e=%20",
    "https://hooks.test:8443/a",
    "https://Hooks.Test/?q",
    "https://1.1.1.1/a",
    "https://[2606:4700::1111]:8443/a",
]
BAD_URLS = [
    "",
    "hooks.test",
    "//hooks.test/",
    "https:///",
    "https://",
    "http:///etc/passwd",
    "file:///etc/passwd",
    "ftp://hooks.test/",
    "gopher://hooks.test/",
    "unix:/run/docker.sock",
    "HTTPS://hooks.test/",
    "https://user@hooks.test/",
    "https://user:word@hooks.test/",
    "https://hooks.test@127.0.0.1/",
    "https://@hooks.test/",
    "https://hooks.test\\@127.0.0.1/",
    "https://hooks.test/\\127.0.0.1",
    "https://hooks.test/a b",
    "https://hooks.test/\r\nX-Header: 1",
    "https://hooks\t.test/",
    "https://hooks.test/#part",
    "https://hooks.test./",
    "https://hooks%2etest/",
    "https://hooks.test%00.test/",
    "https://hööks.test/",
    "https://①②⑦.⓪.⓪.①/",
    "https://ⓛocalhost/",
    "https://hooks.test:0/",
    "https://hooks.test:65536/",
    "https://hooks.test:99999999999/",
    "https://hooks.test:https/",
    "https://[::1/",
    "https://[fe80::1%25lo]/",
    "https://[v1.a]/",
    "https://hooks.test/" + "a" * 2_048,
]
NUMBERS = ["2130706433", "0x7f000001", "0x7f.1", "127.1", "127.0.1", "0", "0177.0.0.1", "a.1"]


class Names:
    """A resolver that gives these answers one after the other, and then repeats the last."""

    def __init__(self, *answers: Sequence[str] | str) -> None:
        self.answers = [[one] if isinstance(one, str) else list(one) for one in answers]
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def nowhere(host: str, port: int) -> Sequence[str]:
    raise OSError(f"{host} is not known")


@asynccontextmanager
async def webhook(
    resolve: Resolver | None = None,
    *allowed: str,
    timeout_s: float = 5.0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Webhook]:
    opened = Webhook(allowed=allowed, timeout_s=timeout_s, resolve=resolve, tls=tls)
    yield opened
    await opened.close()


class Authority:
    """A certificate authority for the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def server(self, name: str) -> tuple[ssl.SSLContext, list[str | None]]:
        """Return the TLS context of a server with this name, and a list that gets the requested
        names.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + dt.timedelta(days=2))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .sign(key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
        path = self._folder / "server.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + self.pem.encode()
        )
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(path)
        asked: list[str | None] = []
        context.sni_callback = lambda _, server_name, __: asked.append(server_name)
        return context, asked

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.pem)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_an_allowed_receiver_gets_the_body_under_its_own_name() -> None:
    async with Receiver() as receiver, webhook(Names("127.0.0.1"), "hooks.test") as hook:
        port = receiver.authority.split(":")[1]
        answer = await hook.post(
            f"http://hooks.test:{port}/a?b=c", b"{}", {"Content-Type": "application/a2a+json"}
        )
        (got,) = receiver.requests

    assert answer == Answer(204)
    assert (got.method, got.path, got.body) == ("POST", "/a?b=c", b"{}")
    assert got.headers["host"] == f"hooks.test:{port}"
    assert got.headers["content-type"] == "application/a2a+json"


async def test_the_certificates_are_not_read_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers = readers_of_certificates(monkeypatch)
    async with Receiver() as receiver, webhook(None, receiver.authority) as hook:
        await hook.post(receiver.url, b"{}", {})

    assert readers
    assert threading.get_ident() not in readers


async def test_the_same_receiver_is_refused_where_it_is_not_allowed() -> None:
    async with Receiver() as receiver, webhook(Names("127.0.0.1")) as hook:
        with pytest.raises(PushUrlRefused):
            await hook.post(receiver.url.replace("127.0.0.1", "hooks.test"), b"{}", {})
        with pytest.raises(PushUrlRefused):
            await hook.post(receiver.url, b"{}", {})

    assert receiver.connections == 0


@pytest.mark.parametrize("address", PUBLIC)
async def test_a_public_address_may_be_reached(address: str) -> None:
    assert is_public(ip_address(address))
    async with webhook(Names(address)) as hook:
        await hook.check_url("https://hooks.test/")


@pytest.mark.parametrize("address", PRIVATE)
async def test_no_address_that_is_not_public_may_be_reached(address: str) -> None:
    for answers in ([address], ["1.1.1.1", address], [address, "1.1.1.1"]):
        async with webhook(Names(answers)) as hook:
            with pytest.raises(PushUrlRefused):
                await hook.check_url("https://hooks.test/")
            with pytest.raises(PushUrlRefused):
                await hook.post("https://hooks.test/", b"{}", {})
    literal = f"[{address}]" if ":" in address else address
    async with webhook() as hook:
        with pytest.raises(PushUrlRefused):
            await hook.check_url(f"https://{literal}/")


@pytest.mark.parametrize("url", GOOD_URLS)
async def test_an_ordinary_url_is_taken(url: str) -> None:
    async with webhook(Names("1.1.1.1")) as hook:
        await hook.check_url(url)


@pytest.mark.parametrize("url", BAD_URLS)
async def test_a_url_that_can_be_read_in_two_ways_is_not_taken(url: str) -> None:
    names = Names("1.1.1.1")
    async with webhook(names) as hook:
        with pytest.raises(PushUrlRefused):
            await hook.check_url(url)
        with pytest.raises(PushUrlRefused):
            await hook.post(url, b"{}", {})

    assert names.asked == []


@pytest.mark.parametrize("host", NUMBERS)
async def test_a_host_that_is_a_number_is_not_taken(host: str) -> None:
    async with webhook(Names("1.1.1.1")) as hook:
        with pytest.raises(PushUrlRefused, match="number"):
            await hook.check_url(f"https://{host}/")


@pytest.mark.parametrize("port", [22, 25, 80, 5432, 6379, 9200])
async def test_only_the_ports_of_https_may_be_named(port: int) -> None:
    async with webhook(Names("1.1.1.1")) as hook:
        with pytest.raises(PushUrlRefused, match="port"):
            await hook.check_url(f"https://hooks.test:{port}/")
    async with webhook(Names("1.1.1.1"), f"hooks.test:{port}") as hook:
        await hook.check_url(f"https://hooks.test:{port}/")


async def test_plain_http_is_for_what_is_allowed() -> None:
    async with webhook(Names("1.1.1.1")) as hook:
        with pytest.raises(PushUrlRefused, match="https"):
            await hook.check_url("http://hooks.test/")
    async with webhook(Names("1.1.1.1"), "hooks.test") as hook:
        await hook.check_url("http://hooks.test/")


@pytest.mark.parametrize(
    ("entry", "let_through", "kept_out"),
    [
        ("hooks.test", "https://hooks.test:9/", "https://a.hooks.test/"),
        ("Hooks.Test:8080", "http://hooks.test:8080/", "http://hooks.test:8081/"),
        ("10.0.0.0/8", "http://hooks.test/", "http://127.0.0.1/"),
        ("10.1.2.3", "http://10.1.2.3/", "http://10.1.2.4/"),
        ("[::1]:80", "http://[::1]/", "http://[::1]:81/"),
        ("::1/128", "http://[::1]:81/", "http://[::2]/"),
    ],
)
async def test_the_list_of_exemptions_lets_through_what_it_names(
    entry: str, let_through: str, kept_out: str
) -> None:
    async with webhook(Names("10.9.9.9"), entry) as hook:
        await hook.check_url(let_through)
        with pytest.raises(PushUrlRefused):
            await hook.check_url(kept_out)


@pytest.mark.parametrize("entry", ["https://a", "a b", "10.0.0.0/40", "*", "a:b:1", "user@a"])
def test_an_exemption_that_is_none_is_told_at_once(entry: str) -> None:
    Exempt(["", "hooks.test"])
    with pytest.raises(Invalid, match="RECALL_PUSH_ALLOWED_HOSTS"):
        Exempt([entry])


async def test_the_answer_does_not_tell_which_names_there_are_inside() -> None:
    said = []
    for resolve in (nowhere, Names("10.0.0.1"), Names([])):
        async with webhook(resolve) as hook:
            with pytest.raises(PushUrlRefused) as refused:
                await hook.check_url("https://hooks.test/")
        said.append(refused.value.message)

    assert len(set(said)) == 1


async def test_a_name_that_turns_to_loopback_after_the_check_reaches_nothing(
    authority: Authority,
) -> None:
    host = loopback()
    tls, _ = authority.server("hooks.test")
    async with Receiver(host=host, port=8443, tls=tls) as receiver:
        rebound = Names("1.1.1.1", host)
        async with webhook(rebound, tls=authority.trusted()) as hook:
            await hook.check_url("https://hooks.test:8443/")
            with pytest.raises(PushUrlRefused):
                await hook.post("https://hooks.test:8443/", b"{}", {})
        refused = receiver.connections
        async with webhook(Names(host), f"{host}/32", tls=authority.trusted()) as hook:
            await hook.post("https://hooks.test:8443/", b"{}", {})

    assert (refused, receiver.connections) == (0, 1)
    assert rebound.asked == ["hooks.test", "hooks.test"]


async def test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_reached() -> None:
    checked, other = loopback(), loopback()
    async with Receiver(host=checked) as first:
        port = int(first.authority.split(":")[1])
        async with Receiver(host=other, port=port) as second:
            names = Names(checked, other)
            async with webhook(names, f"{checked}/32") as hook:
                await hook.post(f"http://hooks.test:{port}/", b"{}", {})

    assert (first.connections, second.connections) == (1, 0)
    assert names.asked == ["hooks.test"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_not_an_order(status: int) -> None:
    async with Receiver() as other:
        moved = Reply(status=status, headers={"Location": other.url})
        async with Receiver(moved) as receiver, webhook(None, "127.0.0.0/8") as hook:
            answer = await hook.post(receiver.url, b"{}", {})

    assert answer.status == status
    assert (len(receiver.requests), other.connections) == (1, 0)


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as proxy, Receiver() as receiver, webhook(None, "127.0.0.0/8") as hook:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{proxy.authority}")
        await hook.post(receiver.url, b"{}", {})

    assert (len(receiver.requests), proxy.connections) == (1, 0)


async def test_nothing_is_remembered_from_one_push_to_the_next() -> None:
    with_cookie = Reply(status=200, headers={"Set-Cookie": "a=b"})
    async with Receiver(with_cookie) as receiver, webhook(None, "127.0.0.0/8") as hook:
        await hook.post(receiver.url, b"{}", {"Authorization": "Bearer secret"})
        await hook.post(receiver.url, b"{}", {})
        first, second = receiver.requests

    assert receiver.connections == 2
    assert first.headers["authorization"] == "Bearer secret"
    assert not {"cookie", "authorization"} & set(second.headers)


@pytest.mark.parametrize("manner", [Manner.HANG, Manner.TRICKLE])
async def test_a_receiver_that_is_too_slow_is_left(manner: Manner) -> None:
    async with (
        Receiver(OK, Reply(manner=manner, status=200)) as receiver,
        webhook(None, "127.0.0.0/8", timeout_s=0.3) as hook,
    ):
        assert (await hook.post(receiver.url, b"{}", {})).status == 204
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(PushFailed, match="in time"):
                await hook.post(receiver.url, b"{}", {})


async def test_a_resolver_that_is_too_slow_is_left() -> None:
    async def stuck(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async with webhook(stuck, timeout_s=0.05) as hook, asyncio.timeout(WITHIN_S):
        with pytest.raises(PushUrlRefused):
            await hook.check_url("https://hooks.test/")
        with pytest.raises(PushFailed, match="in time"):
            await hook.post("https://hooks.test/", b"{}", {})


async def test_an_answer_without_end_is_not_read() -> None:
    endless = Reply(status=200, body=b"x" * 20_000_000)
    async with Receiver(endless) as receiver, webhook(None, "127.0.0.0/8") as hook:
        async with asyncio.timeout(WITHIN_S):
            assert (await hook.post(receiver.url, b"{}", {})).status == 200


BEGUN = b"HTTP/1.1 200 OK\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\n" + b"a: b\r\n" * 30 + b"\r\n"


@asynccontextmanager
async def sending(begun: bytes, again: bytes, times: int) -> AsyncIterator[str]:
    """Run a receiver that answers each request with these bytes; yields its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begun)
        with suppress(ConnectionError):
            for _ in range(times):
                writer.write(again)
                await writer.drain()
            await reader.read()
        writer.close()

    host = loopback()
    async with await asyncio.start_server(answer, host, 0) as server:
        yield f"http://{host}:{server.sockets[0].getsockname()[1]}/hook"


@pytest.mark.parametrize(
    ("begun", "again", "times"),
    [
        (b"", INTERIM * 100, 1_000_000),
        (b"", HINTS * 10, 1_000_000),
        (BEGUN, b"x:\r\n" * 24_000 + b"Content-Length: 0\r\n\r\n", 1),
        (BEGUN, b"x: y\r\n" * 1_000, 1_000_000),
        (BEGUN + b"x: ", b"y" * 10_000, 1_000_000),
    ],
    ids=["interim answers", "hints", "empty headers", "headers without end", "a long header"],
)
async def test_a_receiver_cannot_occupy_the_loop_with_the_lines_of_its_answer(
    begun: bytes, again: bytes, times: int
) -> None:
    """The control: an answer with a few of the same lines is accepted."""
    few = INTERIM + HINTS + BEGUN + b"x:\r\n" * 1_000 + b"Content-Length: 0\r\n\r\n"
    async with webhook(None, "127.0.0.0/8", timeout_s=WITHIN_S) as hook:
        async with sending(b"", few, 1) as url:
            assert (await hook.post(url, b"{}", {})).taken
        async with sending(begun, again, times) as url, watched() as watch:
            with pytest.raises(PushFailed, match="does not speak HTTP"):
                await hook.post(url, b"{}", {})

    watch.check()


async def test_a_receiver_that_is_not_there_or_hangs_up_is_a_failure() -> None:
    async with (
        Receiver(Reply(manner=Manner.CUT)) as receiver,
        webhook(None, "127.0.0.0/8") as hook,
    ):
        with pytest.raises(PushFailed):
            await hook.post(receiver.url, b"{}", {})
        assert (await hook.post(receiver.url, b"{}", {})).status == 204
        url = receiver.url
    async with webhook(None, "127.0.0.0/8") as hook:
        with pytest.raises(PushFailed):
            await hook.post(url, b"{}", {})
    async with webhook(nowhere) as hook:
        with pytest.raises(PushFailed):
            await hook.post("https://hooks.test/", b"{}", {})


async def test_the_next_address_is_tried_where_one_is_dead() -> None:
    dead, alive = loopback(), loopback()
    async with (
        Receiver(host=alive) as receiver,
        webhook(Names([dead, alive]), "127.0.0.0/8") as hook,
    ):
        port = receiver.authority.split(":")[1]
        assert (await hook.post(f"http://hooks.test:{port}/", b"{}", {})).status == 204


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("120", 120.0), ("0", None), ("-1", None), ("inf", None), ("soon", None), ("", None)],
)
async def test_the_wait_that_a_receiver_asks_for_is_told(
    header: str, seconds: float | None
) -> None:
    busy = Reply(status=429, headers={"Retry-After": header})
    async with Receiver(busy) as receiver, webhook(None, "127.0.0.0/8") as hook:
        assert await hook.post(receiver.url, b"{}", {}) == Answer(429, seconds)


async def test_the_certificate_must_be_the_names_and_not_the_addresss(
    authority: Authority,
) -> None:
    tls, asked = authority.server("hooks.test")
    async with Receiver(tls=tls) as receiver:
        port = receiver.authority.split(":")[1]
        async with webhook(Names("127.0.0.1"), "127.0.0.0/8", tls=authority.trusted()) as hook:
            answer = await hook.post(f"https://hooks.test:{port}/", b"{}", {})
            with pytest.raises(PushFailed):
                await hook.post(f"https://other.test:{port}/", b"{}", {})
        async with webhook(Names("127.0.0.1"), "127.0.0.0/8") as hook:
            with pytest.raises(PushFailed):
                await hook.post(f"https://hooks.test:{port}/", b"{}", {})

    assert answer.status == 204
    assert len(receiver.requests) == 1
    assert asked == ["hooks.test", "other.test", "hooks.test"]


async def test_a_tenant_whose_names_are_never_found_does_not_hold_up_anothers() -> None:
    """A look-up counts against its tenant as long as it lasts, even if nobody waits for it any
    more.
    """
    free, asked = asyncio.Event(), list[str]()

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        if host.startswith("silent"):
            await free.wait()
        return ["1.1.1.1"]

    hook = Webhook(lookup_s=0.2, lookups=3, tenant_lookups=2, resolve=resolve)
    for _ in range(2):
        mallorys = [
            hook.check_url(f"https://silent{number}.test/", tenant="mallory") for number in range(9)
        ]
        refused = await asyncio.gather(*mallorys, return_exceptions=True)
        assert [type(one) for one in refused] == [PushUrlRefused] * 9
        await hook.check_url("https://hooks.test/", tenant="bob")
    free.set()
    await asyncio.sleep(0)
    # Her own look-ups are free again.
    await hook.check_url("https://hooks.test/", tenant="mallory")
    await hook.close()

    assert asked[:3] == ["silent0.test", "silent1.test", "hooks.test"]
    assert len(asked) == 5


async def test_names_are_looked_up_though_all_threads_of_the_process_are_busy() -> None:
    busy, done = ThreadPoolExecutor(1), threading.Event()
    asyncio.get_running_loop().set_default_executor(busy)
    held = asyncio.get_running_loop().run_in_executor(None, done.wait)
    async with webhook(None, "localhost", timeout_s=5) as hook:
        try:
            async with asyncio.timeout(WITHIN_S):
                await hook.check_url("http://localhost:9/")
        finally:
            done.set()
            await held

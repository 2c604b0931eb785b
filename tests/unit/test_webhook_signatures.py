"""The signature of a webhook follows Standard Webhooks."""

from datetime import UTC, datetime

from recall_server.domain.webhook import signed


def test_a_delivery_is_signed_as_the_example_of_the_standard() -> None:
    headers = signed(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        datetime.fromtimestamp(1_614_265_330, UTC),
        b'{"test": 2432232314}',
    )

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }

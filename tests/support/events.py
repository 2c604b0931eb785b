"""Turns about events, for questions about them."""

from recall_server.application import Application
from recall_server.domain.query import Query
from tests.support.conversation import drained, enter
from tests.support.searches import tell

TALKS = (
    "--- 8 January 2023 ---\nAnn: I painted the boat blue.\nBen: Good colour.",
    "--- 8 May 2023 ---\nAnn: The regatta was today, we came second.\nBen: Well done!",
    "--- 8 September 2023 ---\nAnn: I painted the boat red.\nBen: I like that.",
)


BEFORE = Query("Which colour did Ann paint the boat before the regatta?", limit=10)


async def told(application: Application) -> None:
    await enter(application)
    for number, talk in enumerate(TALKS):
        await tell(application, talk, session=f"s{number}")
    await drained(application)

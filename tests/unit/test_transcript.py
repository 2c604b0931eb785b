"""A text is cut into turns, and a turn into chunks."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_server.domain.episode import Turn
from recall_server.domain.text.passages import chunk
from recall_server.domain.text.transcript import TURN_CHARS_MAX, parse_turns

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def said(text: str) -> list[tuple[str | None, str]]:
    return [(t.speaker, text[t.span.start : t.span.end]) for t in parse_turns(text, NOW)]


def only(text: str) -> Turn:
    (turn,) = parse_turns(text, NOW)
    return turn


@pytest.mark.parametrize(
    ("line", "speaker", "words"),
    [
        ("User: I moved.", "User", "I moved."),
        ("assistant: Noted.", "assistant", "Noted."),
        ("Alice: I moved to Rome.", "Alice", "I moved to Rome."),
        ("**Alice:** I moved to Rome.", "Alice", "I moved to Rome."),
        ("**Alice**: I moved to Rome.", "Alice", "I moved to Rome."),
        ("- Alice: I moved to Rome.", "Alice", "I moved to Rome."),
        ("Alice (2023-05-08 13:56): I moved.", "Alice", "I moved."),
        ("[8 May 2023, 13:56] Alice: I moved.", "Alice", "I moved."),
        ("[13:56] Alice: I moved.", "Alice", "I moved."),
        ("[08.05.23, 13:56:01] Alice: I moved.", "Alice", "I moved."),
        ("08.05.23, 13:56 - Alice: I moved.", "Alice", "I moved."),
        ("08.05.23, 13:56 - +44 7700 900812: I moved.", "+44 7700 900812", "I moved."),
        ("[13:56] <alice_> I moved.", "alice_", "I moved."),
        ("13:56 <@alice> I moved.", "alice", "I moved."),
        ("<v Alice>I moved.</v>", "Alice", "I moved."),
        ("You said:\nI moved.", "User", "I moved."),
        ("## ChatGPT said:\nYou moved.", "ChatGPT", "You moved."),
        ("Jean-Luc O'Neill: I moved to Rome.", "Jean-Luc O'Neill", "I moved to Rome."),
        ("Ludwig van Beethoven: I moved to Rome.", "Ludwig van Beethoven", "I moved to Rome."),
        ("Zoë: I moved to Rome.", "Zoë", "I moved to Rome."),
        ("Agent 2: I moved to Rome.", "Agent 2", "I moved to Rome."),
        ("Alice 🌻 (2023-05-08 13:56): I moved.", "Alice", "I moved."),
        ("(13:56) Alice: I moved.", "Alice", "I moved."),
        ("00:13:56.120 Alice: I moved.", "Alice", "I moved."),
        ("13:56:02 From Alice Kim to Everyone: I moved.", "Alice Kim", "I moved."),
        ("[Speaker 1]: I moved to Rome.", "Speaker 1", "I moved to Rome."),
    ],
)
def test_a_label_names_the_speaker(line: str, speaker: str, words: str) -> None:
    assert said(line) == [(speaker, words)]


@pytest.mark.parametrize(
    "line",
    [
        "Note: the office is closed.",
        "TODO: write the tests.",
        "Re: your invoice of last week.",
        "Steps: build, then ship.",
        "http://example.com: a page",
        "See https://example.com/a:b for more.",
        "The problem: nobody knows who owns it.",
        "We have three options: a, b and c.",
        "Remember: the key is under the mat.",
        "12:30 is when we meet.",
        "Language: Python\nEditor: Vim",
        "key: value",
        ": nothing before",
    ],
)
def test_other_colons_name_nobody(line: str) -> None:
    assert said(line) == [(None, line)]


def test_a_name_among_prose_counts_only_when_it_repeats() -> None:
    once = "We met on Monday.\nAlice: she was late."
    twice = "Alice: I was late.\nSorry.\nAlice: It rained."

    assert said(once) == [(None, once)]
    assert said(twice) == [("Alice", "I was late.\nSorry."), ("Alice", "It rained.")]


def test_names_before_a_wide_colon_speak_if_one_recurs_after_another() -> None:
    chat = "王芳：我下周搬家。\n李明：真的吗？\n王芳：搬到杭州。"
    keys = "姓名：王芳\n备注：对花生过敏。\n备注：不喝酒。"

    assert [turn.speaker for turn in parse_turns(chat, NOW)] == ["王芳", "李明", "王芳"]
    titled, torn = f"羽毛球群\n{chat}", f"{chat}\n四月三日再说。"
    assert [turn.speaker for turn in parse_turns(titled, NOW)] == [None, "王芳", "李明", "王芳"]
    assert [turn.speaker for turn in parse_turns(keys, NOW)] == [None]
    assert [turn.speaker for turn in parse_turns(torn, NOW)] == [None]


def test_lines_without_a_label_belong_to_the_turn_before() -> None:
    text = "User: first\nsecond\n\nthird\nBot: fine"

    assert said(text) == [("User", "first\nsecond\n\nthird"), ("Bot", "fine")]


def test_prose_gives_a_turn_a_paragraph() -> None:
    assert said("One.\nStill one.\n\n  Two.  \n") == [(None, "One.\nStill one."), (None, "Two.")]


def test_labels_in_a_code_block_are_code() -> None:
    text = "User: look\n```\nUser: x\n## 2023-05-08\n```\nBot: fine"

    assert said(text) == [("User", "look\n```\nUser: x\n## 2023-05-08\n```"), ("Bot", "fine")]


@pytest.mark.parametrize(
    ("heading", "said_at", "session"),
    [
        ("--- 8 May 2023 ---", "2023-05-08T00:00:00+00:00", None),
        ("## Session 3 - 2023-05-08", "2023-05-08T00:00:00+00:00", "Session 3"),
        ("=== session_1 | 2023-05-08T13:56:00 ===", "2023-05-08T13:56:00+00:00", "session_1"),
        ("=== session_1 | 2023-05-08T13:56:00+02:00 ===", "2023-05-08T11:56:00+00:00", "session_1"),
        ("Date: 8 May 2023", "2023-05-08T00:00:00+00:00", None),
        ("DATE: 1:56 pm on 8 May, 2023", "2023-05-08T13:56:00+00:00", None),
        ("Monday, May 8th, 2023", "2023-05-08T00:00:00+00:00", None),
        ("2023-05-08", "2023-05-08T00:00:00+00:00", None),
        ("2023-05-08 (Mon)", "2023-05-08T00:00:00+00:00", None),
        ("2023年5月8日（月・祝）", "2023-05-08T00:00:00+00:00", None),
    ],
)
def test_a_heading_dates_what_follows(heading: str, said_at: str, session: str | None) -> None:
    first, second = parse_turns(f"{heading}\nAlice: I moved.\nAlice: Again.", NOW)

    assert first.said_at is not None
    assert first.said_at.isoformat() == said_at
    assert second.said_at == first.said_at
    assert first.session == session


def test_a_stamp_on_the_line_is_nearer_than_the_heading() -> None:
    text = "--- 8 May 2023 ---\n[13:56] Alice: one\n[9 May 2023, 08:00] Alice: two\nAlice: three"

    assert [t.said_at for t in parse_turns(text, NOW)] == [
        datetime(2023, 5, 8, 13, 56, tzinfo=UTC),
        datetime(2023, 5, 9, 8, 0, tzinfo=UTC),
        datetime(2023, 5, 8, tzinfo=UTC),
    ]


def test_a_bare_time_is_on_the_day_of_the_episode() -> None:
    assert only("[13:56] Alice: one").said_at == datetime(2024, 1, 1, 13, 56, tzinfo=UTC)


def test_an_ambiguous_or_impossible_date_dates_nothing() -> None:
    assert only("[03/04/2023, 13:56] Alice: one").said_at is None
    assert only("[31 February 2023] Alice: one").said_at is None


def test_the_other_stamps_or_the_day_of_the_text_tell_the_month_of_an_ambiguous_date() -> None:
    exported = "[03/04/2023, 13:56] Alice: one\n[13/04/2023, 8:00] Bob: two"
    recent = "[02/01/24, 13:56] Alice: one"

    assert parse_turns(exported, NOW)[0].said_at == datetime(2023, 4, 3, 13, 56, tzinfo=UTC)
    assert only(recent).said_at is None
    last_year = parse_turns(recent, datetime(2024, 1, 20, tzinfo=UTC))[0]
    assert last_year.said_at == datetime(2024, 1, 2, 13, 56, tzinfo=UTC)


def test_days_that_follow_each_other_tell_the_month_of_ambiguous_dates() -> None:
    days = [f"{day}/09/2023, 19:12 - Ana: hi" for day in ("04", "05", "07")]
    same = [f"04/09/2023, 19:1{minute} - Ana: hi" for minute in "234"]
    months = [f"09/{day}/2023, 19:12 - Ana: hi" for day in ("04", "05", "07")]

    for stamps in (days, months):
        found = [turn.said_at for turn in parse_turns("\n".join(stamps), NOW)]
        assert [one and (one.month, one.day) for one in found] == [(9, 4), (9, 5), (9, 7)]
    assert {turn.said_at for turn in parse_turns("\n".join(same), NOW)} == {None}


def test_the_messenger_speaks_its_own_notices() -> None:
    stamp = "14/09/2023, 19:12 - "
    text = f'{stamp}Ana created group "Boat"\n{stamp}Ana: Keep it quiet.\n{stamp}Bo: ok'

    assert said(text)[0] == ("system", 'Ana created group "Boat"')
    assert said(f"{stamp}deployed\n{stamp}rolled back")[0][0] is None


@pytest.mark.parametrize(
    "stamp", ["Ana Kim  9:03 AM", "Ana Kim — Today at 9:03 AM", "Ana Kim, [01.01.24 9:03]"]
)
def test_a_name_and_a_time_above_a_message_name_its_speaker(stamp: str) -> None:
    text = f"{stamp}\nWe signed.\n36 seats.\n\nBob  9:05 AM\nWho?\n{stamp}\nMonique."

    assert said(text) == [
        ("Ana Kim", "We signed.\n36 seats."), ("Bob", "Who?"), ("Ana Kim", "Monique."),
    ]  # fmt: skip
    assert parse_turns(text, NOW)[0].said_at == datetime(2024, 1, 1, 9, 3, tzinfo=UTC)


def test_a_day_without_a_year_is_that_of_the_times_below_it() -> None:
    text = "Monday, December 18th\n[9:03] Ana: one\nTuesday, December 19th\n[9:04] Bob: two"

    turns = parse_turns(text, NOW)

    assert [t.speaker for t in turns] == [None, "Ana", None, "Bob"]
    assert [t.said_at and t.said_at.day for t in turns] == [None, 18, None, 19]


def test_the_title_of_a_chat_names_the_day_of_its_times() -> None:
    turns = parse_turns("#depot, export 2023-12-18\n\n[9:03] Ana: one\n[9:04] Bob: two", NOW)
    later = parse_turns("#depot, until 2024-12-18\n\n[9:03] Ana: one\n[9:04] Bob: two", NOW)
    below = parse_turns("[9:03] Ana: one\nDecember 18th\n[9:04] Bob: two", NOW)

    assert [t.said_at and t.said_at.day for t in turns] == [None, 18, 18]
    assert [t.said_at and t.said_at.day for t in later] == [None, 1, 1]
    assert [t.said_at and t.said_at.day for t in below] == [1, None, 18]


def test_a_role_above_what_is_said_in_a_copied_session_speaks_it() -> None:
    text = "## User\nStream it.\n\n## Assistant\nDone.\n\n## User\nMerge it."

    assert said(text) == [("User", "Stream it."), ("Assistant", "Done."), ("User", "Merge it.")]
    once = "## Client\nIt is written in Go.\n\n## Server\nIt is written in Rust."
    assert [name for name, _ in said(once)] == [None, None]


def test_who_commented_or_wrote_speaks_the_lines_below() -> None:
    text = "PR #482\n\nmlin requested changes:\nI lost a day.\n\nAna Kim wrote:\nFixed."

    assert said(text) == [(None, "PR #482"), ("mlin", "I lost a day."), ("Ana Kim", "Fixed.")]
    assert said("He wrote:\nFixed.") == [(None, "He wrote:\nFixed.")]
    assert said("The manual added:\nOil it.") == [(None, "The manual added:\nOil it.")]


@pytest.mark.parametrize(
    "label",
    ["mlin commented on May 3, 2023", "mlin commented 2 days ago:", "mlin commented yesterday"],
)
def test_a_comment_may_tell_when_it_was_written(label: str) -> None:
    assert said(f"{label}\nIt drops a line.") == [("mlin", "It drops a line.")]
    assert said("mlin commented on the parser\nIt drops a line.")[0][0] is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[00:03:12] Ana Kim\n", "[00:03:20] Bo\n"),
        ("**Ana Kim** (09:12)\n", "**Bo** (09:15)\n"),
        ("00:00:00\n\nAna Kim: ", "Bo: "),
        ("<Ana> ", "<Bo> "),
        ("Ana – ", "Bo – "),
    ],
)
def test_a_chat_in_which_every_message_has_a_label_has_speakers(one: str, other: str) -> None:
    text = f"{one}It moves to May.\n{other}I need the copy.\n{one}On Friday."

    assert [words for _, words in said(text)] == [
        "It moves to May.",
        "I need the copy.",
        "On Friday.",
    ]
    assert [(speaker or "").split()[0] for speaker, _ in said(text)] == ["Ana", "Bo", "Ana"]


@pytest.mark.parametrize(
    "text",
    [
        "<b> bold\n<i> italic\nplain",
        "Apples – 3 kg\nPears – 2 kg\nPlums – 1 kg",
        "Ana – one\nBo – two\nAna – three\nThat is all.",
    ],
)
def test_tags_and_dashes_of_which_not_every_line_has_one_are_no_labels(text: str) -> None:
    assert {speaker for speaker, _ in said(text)} == {None}


def test_a_message_with_a_day_and_a_time_above_it_needs_no_second_one() -> None:
    text = "Ana Kim, [03.05.2023 09:12]\nI moved.\n\nBo, [03.05.2023 09:15]\nI did not."

    assert said(text) == [("Ana Kim", "I moved."), ("Bo", "I did not.")]


MAIL = """\
From: Ana Kim <ana@kim.example>
To: Bo
Date: Mon, 6 Nov 2023 09:12
Subject: Flat

I moved to Leeds.

> Where do you live?

The landlord is Mr Shaw."""


def test_the_head_of_a_mail_names_who_says_what_is_not_quoted_in_it() -> None:
    assert said(MAIL) == [
        ("Ana Kim", "To: Bo\nDate: Mon, 6 Nov 2023 09:12\nSubject: Flat\n\nI moved to Leeds."),
        (None, "> Where do you live?"),
        ("Ana Kim", "The landlord is Mr Shaw."),
    ]
    assert {turn.said_at for turn in parse_turns(MAIL, NOW) if turn.speaker} == {
        datetime(2023, 11, 6, 9, 12, tzinfo=UTC)
    }


def test_the_sender_of_a_mail_may_be_somebody_of_a_company() -> None:
    mail = "Von: Küchenhaus Lindner, T. Prell\nBetreff: AW: Fronten\n\nDas tut uns leid.\n"
    found = said(f"{mail}\n---\n{mail}")
    assert [speaker for speaker, _ in found] == ["Küchenhaus Lindner, T. Prell"] * 2


def test_a_mail_as_a_mail_program_shows_it_has_a_sender() -> None:
    shown = "Ana Kim <ana@kim.example>\nMon, Jan 11, 9:12 AM\nto me\n\nIt is 900."

    assert said(f"Flat\nInbox\n\n{shown}") == [(None, "Flat\nInbox"), ("Ana Kim", "It is 900.")]
    assert only(shown).said_at is None
    assert said("Ana Kim <ana@kim.example>\nis who to ask.")[0][0] is None


def test_a_head_that_does_not_begin_with_its_sender_is_kept_whole() -> None:
    text = "Subject: Rent\nFrom: Ana Kim\n\nIt is 900."

    assert said(text) == [("Ana Kim", text)]


@pytest.mark.parametrize(
    "line",
    [
        "On Mon, 6 Nov 2023 at 9:12 AM, Ana Kim <ana@kim.example> wrote:",
        "On Mon, Nov 6, 2023 at 9:12 AM Ana Kim <ana@kim.example>\nwrote:",
        "Am Mo., 6. Nov. 2023 um 09:12 Uhr schrieb Ana Kim <ana@kim.example>:",
        "Le lun. 6 nov. 2023 à 09:12, Ana Kim <ana@kim.example> a écrit :",
        "El lun, 6 nov 2023 a las 9:12, Ana Kim (<ana@kim.example>) escribió:",
    ],
)
def test_the_line_above_a_quoted_mail_names_its_sender(line: str) -> None:
    marked = f"It is 900.\n\n{line}\n> How much is it?\n\nThanks."

    assert [turn.said_at for turn in parse_turns(f"{line}\nIt is 900.", NOW)] == [
        datetime(2023, 11, 6, 9, 12, tzinfo=UTC)
    ]
    assert said(f"{line}\n\nIt is 900.\n\nOn the 1st.") == [
        ("Ana Kim", "It is 900.\n\nOn the 1st.")
    ]
    assert said(marked) == [
        (None, "It is 900."),
        ("Ana Kim", "> How much is it?"),
        (None, "Thanks."),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "From: Berlin\nTo: Paris\nDate: 5 May 2023",
        "On 5 May 2023 Ana wrote: a letter to the bank.",
        "On the way home Ana wrote:\nIt is 900.",
        "Subject: Rent\nTo: Ana Kim\n\nIt is 900.",
    ],
)
def test_what_is_no_mail_names_no_sender(text: str) -> None:
    assert {speaker for speaker, _ in said(text)} == {None}


def test_names_without_capitals_speak_if_every_line_has_one() -> None:
    chat = "美咲: 元気?\n彩: 元気だよ。\n美咲: よかった。"
    keys = "名前: 彩\n趣味: 写真\n住所: 鎌倉"

    assert [speaker for speaker, _ in said(chat)] == ["美咲", "彩", "美咲"]
    assert said(keys) == [(None, keys)]
    assert said(f"{chat}\n終わり") == [(None, f"{chat}\n終わり")]


@pytest.mark.parametrize(("prompt", "answer"), [(">", "●"), ("❯", "⏺"), (">", "✦"), ("›", "•")])
def test_the_marks_of_a_terminal_tell_the_user_the_agent_and_its_tools(
    prompt: str, answer: str
) -> None:
    session = f"""\
{prompt} pnpm only, never npm

{answer} Update(csv.ts)
  ⎿  Added 41 lines

{prompt} never push
  i push myself

{answer} Noted."""

    assert said(session) == [
        ("user", "pnpm only, never npm"),
        ("assistant", "Update(csv.ts)"),
        ("tool", "Added 41 lines"),
        ("user", "never push\n  i push myself"),
        ("assistant", "Noted."),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "> A quote.\n\n● Eggs\n● Flour\n● Salt",
        "> A quote.\n• Eggs\n> Another.\n• Flour",
    ],
)
def test_a_list_below_a_quote_is_no_session_with_an_agent(text: str) -> None:
    assert {speaker for speaker, _ in said(text)} == {None}


@pytest.mark.parametrize("apart", ["\t", " "])
def test_an_exported_chat_without_colons_has_speakers(apart: str) -> None:
    lines = [
        "20:11 美咲 そろそろ決めよー",
        "20:12 健太 18日は?",
        "20:13 美咲 私は検診。",
        "20:14 健太 了解",
    ]
    chat = "\n".join(apart.join(line.split(" ", 2)) for line in lines)
    assert said(f"[LINE] 還暦旅行(3)\n2026/08/22(土)\n{chat}")[1:] == [
        ("美咲", "そろそろ決めよー"),
        ("健太", "18日は?"),
        ("美咲", "私は検診。"),
        ("健太", "了解"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "10:00 受付 開始\n10:30 講演 木村先生\n12:00 昼食 二階\n13:00 講演 森先生",
        "02:51 alert gps lag\n02:58 Marisol acks\n03:05 Marisol calls\n03:12 alert ends",
        "10:00 受付 開始\n10:30 受付 終了\n二階で講演",
        "9:00\tMaths\tHall 12\n10:00\tSport\tGym\n11:00\tMaths\tHall 12\n12:00\tSport\tGym",
        "Frage: Wo wohnen Sie?\nAntwort: In Graz.\nFrage: Seit wann?\nAntwort: Seit Mai.",
        "08:00 起床 六時\n09:00 朝食 パン\n10:00 会議 二階\n11:00 朝食 ご飯\n12:00 会議 三階",
    ],
)
def test_a_time_and_two_words_are_a_label_only_in_a_chat_without_capitals(text: str) -> None:
    assert {speaker for speaker, _ in said(text)} == {None}


def test_names_in_small_letters_speak_if_most_lines_have_one_and_some_say_i() -> None:
    chat = "ana: i moved to graz\nand like it\nbob: nice\nana: come and see me"
    assert [speaker for speaker, _ in said(chat)] == ["ana", "bob", "ana"]
    for one, other in (("good", "bad"), ("fix", "feat"), ("lunch", "dinner"), ("en", "de")):
        notes = f"{one}: my own one\n{other}: we saw you\n{one}: I slept\n{other}: you rest"
        assert {speaker for speaker, _ in said(notes)} == {None}
    settings_ = "run: pip install -e .\nuses: checkout\nrun: pytest -q tests\nif: always()"
    assert {speaker for speaker, _ in said(settings_)} == {None}


@pytest.mark.parametrize("role", ["用户", "ユーザー", "Kundin", "Usuaria"])
def test_a_role_speaks_in_each_language(role: str) -> None:
    assert said(f"{role}：我住在杭州，吃素。")[0][0] == role
    assert [speaker for speaker, _ in said(f"{role}：我住在杭州。\n客服：好的")] == [role, "客服"]


def test_a_role_is_a_key_among_settings_and_in_an_invoice() -> None:
    assert said("host: db.example\nport: 80\nuser: app")[0][0] is None
    assert said("Host: db1\nUser: root\nPort: 22")[0][0] is None
    assert said("Agent: Tom Reed\nPolicy: 4711\nCustomer: Ana Kim, Graz")[0][0] is None
    assert said("User story: As a nurse I want to see my shifts.")[0][0] is None
    assert said("Week 2: I started.\nWeek 3: I met Ana.")[0][0] is None
    assert said("Customer service: How can I help?")[0][0] == "Customer service"
    assert said("role: user\ncontent: I am here.\nrole: agent\ncontent: Ok.")[0][0] is None
    assert said("客户：上海明珠贸易有限公司\n电话：13800000000")[0][0] is None


def test_what_stands_below_a_named_rule_is_not_part_of_the_talk_above_it() -> None:
    talk = "Ana: Hosting is London.\nBen: Good, Leeds is chaos.\nAna: See you there.\n"
    notes = "Stage: proposal, we think.\nNever ring Ben on a Monday.\nSend: the quote. And soon."
    found = said(f"{talk}\n--- CRM NOTE ---\n{notes}")
    assert [speaker for speaker, _ in found] == ["Ana", "Ben", "Ana", None]
    assert found[-1][1].endswith(notes)
    again = said(f"{talk}\n--- Part 2 ---\nBen: It is done.\nCarl: Then we are.")
    assert [speaker for speaker, _ in again][-2:] == ["Ben", "Carl"]


def test_named_rules_part_a_text_that_begins_with_one() -> None:
    talk = "Agent: Hello.\nCustomer: I live in Graz.\nAgent: Sure."
    found = said(f"--- CALL ---\n{talk}\n--- SUMMARY ---\nRefund approved.")
    assert [speaker for speaker, _ in found] == [None, "Agent", "Customer", "Agent", None]


def test_a_notice_of_a_channel_is_nobodys_message() -> None:
    chat = "[10:00] <ana> hi\n[10:01] <ben> cool\n[10:02] * carl has joined\n[10:03] <ana> yes"
    assert [speaker for speaker, _ in said(chat)] == ["ana", "ben", "system", "ana"]
    assert {speaker for speaker, _ in said("[10:00] * doors\n[10:30] * talk")} == {None}


@pytest.mark.parametrize("other", ["~ben~", "*ben*", "wife", "_lena_"])
def test_who_has_any_nickname_is_not_taken_for_who_spoke_before(other: str) -> None:
    found = said(f"me: are you home\n{other}: i am at work\nme: ok")
    assert [speaker for speaker, _ in found] == ["me", other.strip("~*"), "me"]
    assert [one for one, _ in said("Me: hi\nAna: hello\nMe: I am home")] == ["Me", "Ana", "Me"]
    found = said(f"Max88: ich bin da.\n{other}: du auch?\nMax88: Cool.\n{other}: ja")
    assert [speaker for speaker, _ in found] == ["Max88", other.strip("~*")] * 2


def test_a_time_and_a_name_of_two_words_before_a_colon_are_no_timetable() -> None:
    chat = "20:11 Ana Kim: ok\n20:12 Ben Lee: hi\n20:13 Ana Kim: yes\n20:14 Ben Lee: see you there"
    assert [speaker for speaker, _ in said(chat)] == ["Ana Kim", "Ben Lee"] * 2


def test_a_word_in_lower_case_after_a_time_speaks_if_it_comes_twice() -> None:
    assert said("[10:02] tess: hi\n[10:03] tess: ho") == [("tess", "hi"), ("tess", "ho")]
    log = "[10:02] action=run\n[10:03] learned: restart cart"
    assert said(log) == [(None, log)]


def test_a_timetable_has_no_speakers() -> None:
    text = "Yoga 9:00\nBring a mat.\nSwimming 10:00\nMonday 11:00\nMonday 12:00\nRun"

    assert said(text) == [(None, text)]


def test_a_time_before_a_label_is_no_reason_to_take_it_for_a_speaker() -> None:
    assert said("00:12 Mel: Hello?\n00:20 Ravi: It's me.\n00:31 Mel: Go on.") == [
        ("Mel", "Hello?"), ("Ravi", "It's me."), ("Mel", "Go on."),
    ]  # fmt: skip
    log = "10:06 Deploy: begins\n10:14 First alerts came in\n10:15 Redis: full"
    assert said(log) == [(None, log)]


def test_a_sentence_with_a_date_is_no_heading() -> None:
    assert said("2023-05-08 was the day on which we met.")[0][1].endswith("we met.")
    assert said("# On 8 May 2023 we moved the whole database")[0][1].endswith("database")


def test_a_long_turn_is_cut_at_sentence_ends() -> None:
    text = "Alice: " + "This is one more sentence. " * 200

    turns = parse_turns(text, NOW)

    assert len(turns) > 1
    assert {t.speaker for t in turns} == {"Alice"}
    for turn in turns:
        assert turn.span.end - turn.span.start <= TURN_CHARS_MAX
        assert text[turn.span.start : turn.span.end].startswith("This")
        assert text[turn.span.start : turn.span.end].endswith(".")


@given(st.text(max_size=3000) | st.text(alphabet="aB :\n[]*`#-1", max_size=600))
@settings(deadline=None)
def test_turns_are_in_order_stripped_and_apart(text: str) -> None:
    turns = parse_turns(text, NOW)

    ends = 0
    for index, turn in enumerate(turns):
        words = text[turn.span.start : turn.span.end]
        assert turn.index == index
        assert turn.span.start >= ends
        assert words == words.strip()
        assert words
        ends = turn.span.end


@given(st.lists(st.text(alphabet="abc .,é漢\t", min_size=1, max_size=2000), max_size=6))
@settings(deadline=None)
def test_every_character_that_is_not_label_or_heading_is_in_one_turn(parts: list[str]) -> None:
    marks = ["User:", "Assistant:", "--- 8 May 2023 ---\nUser:"]
    text = "\n".join(f"{marks[i % 3]} {part}" for i, part in enumerate(parts))

    kept = "".join(text[t.span.start : t.span.end] for t in parse_turns(text, NOW))

    assert "".join(kept.split()) == "".join("".join(parts).split())


@given(st.text(max_size=3000), st.integers(1, 500))
@settings(deadline=None)
def test_every_turn_is_in_exactly_one_chunk(text: str, chars_max: int) -> None:
    turns = parse_turns(text, NOW)

    chunks = chunk(turns, chars_max)

    assert tuple(turn for group in chunks for turn in group) == turns
    for group in chunks:
        chars = sum(turn.span.end - turn.span.start for turn in group)
        assert chars <= chars_max or len(group) == 1


@pytest.mark.parametrize(
    "line",
    [
        "Jo (she/her)  9:04 AM",
        "Jo (back on Monday)  9:04 AM",
        "Jo [Acme]  9:04 AM",
        "Jo :palm_tree:  9:04 AM",
        "Jo  APP  9:04 AM",
        "Jo 🌴 9:04 AM",
    ],
)
def test_what_a_work_chat_shows_beside_a_name_does_not_hide_who_speaks(line: str) -> None:
    text = f"Ana Kim  9:03 AM\nWe signed.\n\n{line}\nI live in York.\n\nAna Kim  9:05 AM\nOk."

    assert said(text) == [("Ana Kim", "We signed."), ("Jo", "I live in York."), ("Ana Kim", "Ok.")]


@pytest.mark.parametrize(
    ("name", "speaker"),
    [("Mum ❤️", "Mum ❤️"), ("~ Bo Li", "Bo Li"), ("dad", "dad"), ("Jo & Al", "Jo & Al")],
)
@pytest.mark.parametrize("form", ["[06.11.23, 09:1{}:20] {}: {}", "06.11.23, 09:1{} - {}: {}"])
def test_a_contact_of_a_messenger_may_have_any_name(name: str, speaker: str, form: str) -> None:
    lines = [form.format(n, by, f"I say {n}.") for n, by in enumerate(["Ana", name, "Ana"])]

    assert said("\n".join(lines)) == [
        ("Ana", "I say 0."),
        (speaker, "I say 1."),
        ("Ana", "I say 2."),
    ]


def test_a_notice_with_a_colon_and_a_mark_of_direction_are_those_of_a_messenger() -> None:
    stamp = "16/11/23, 9:14\u202fPM - "
    text = f"{stamp}Ana changed the subject to: Boat\n\u200e{stamp}Ana: Hi there.\n{stamp}Bo: ok"

    assert [speaker for speaker, _ in said(text)] == ["system", "Ana", "Bo"]
    at = datetime(2023, 11, 20, tzinfo=UTC)
    assert {turn.said_at and turn.said_at.hour for turn in parse_turns(text, at)} == {21}


@pytest.mark.parametrize(
    "text",
    [
        "spec:\n  - Port: 80\n    Target: 8080\n  - Port: 443\n    Target: 8443",
        "[server]\nHost: example.org\nPort: 80\n[client]\nHost: example.net\nPort: 90",
        "ValueError: I have no port\nDuring this:\nValueError: I have no host",
        "commit 1a2b\nAuthor: Ana Kim\n    fix the port\ncommit 3c4d\nAuthor: Bo Li",
        "Harbour 9:00\nStation 9:10\nHarbour 10:00\nStation 10:10",
        "Dentist, 03.05.2023 09:12\nGarage, 04.05.2023 10:00",
        "Yoga, 9:00\nPilates, 10:00\nTuesday\nYoga, 9:00\nSpinning, 18:00\nBring a mat.",
        "9:00 Doors: tea in the hall\n10:00 Talk: Dr Ode on peat\n11:00 Tea: tea\n13:00 Tea: tea",
        "Berlin – the hotel is booked\nBonn – the hotel is open\nBerlin – the train is at 9",
        "时间: 周四下午三点\n地点: 深圳南山\n时间: 周五下午三点\n地点: 广州天河",
    ],
)
def test_settings_programmes_and_lists_have_no_speakers_and_lose_no_word(text: str) -> None:
    assert {speaker for speaker, _ in said(text)} == {None}
    assert "".join(words for _, words in said(text)).split() == text.split()


def test_who_speaks_once_is_not_taken_for_who_spoke_before() -> None:
    text = "# Sync\n\nAna: I finished the port.\nBo: I am on leave.\nAna: I need a review."

    assert said(text)[1:] == [
        ("Ana", "I finished the port."),
        ("Bo", "I am on leave."),
        ("Ana", "I need a review."),
    ]
    packed = "I pack it:\n- Boots: two pairs of them\nAnd wax."
    assert said(f"Ana: {packed}\nAna: I am done.")[0] == ("Ana", packed)


@pytest.mark.parametrize("heading", ["## Risks", "2. Risks"])
def test_what_is_below_a_heading_is_not_of_who_spoke_above_it(heading: str) -> None:
    minutes = f"Ana: I finished it.\nBo: I did not.\nAna: Pity.\n\n{heading}\nThe firm may close."

    assert said(minutes)[-1] == (None, f"{heading}\nThe firm may close.")
    for agent in ("Assistant", "Grok"):
        roles = f"Ana: Plan it.\n{agent}: Well.\n\n{heading}\nThe firm may close."
        assert said(f"Ana: Hi there.\n{roles}")[-1][0] == agent


@pytest.mark.parametrize(
    "text",
    [
        "What he wrote:\n\n> Take two.\n\n● Morning\n\n> No beer.\n\n● Or wine",
        "> Buy milk\n> Call Ana\n● Done: bread\n> Pay rent\n● Done: eggs",
    ],
)
def test_quotes_above_lists_are_no_session_with_an_agent(text: str) -> None:
    assert {speaker for speaker, _ in said(text)} == {None}
    session = "│ Welcome\n\n> take two\n\n● Taken.\n\n> no beer\n\n● Fine."
    assert [speaker for speaker, _ in said(session)] == [
        None, "user", "assistant", "user", "assistant"
    ]  # fmt: skip


def test_who_answers_below_a_quoted_post_is_not_who_is_quoted() -> None:
    forum = "Bo wrote:\n> I live in Kiel.\n\nI am in Mainz.\n\nCy wrote:\n> Try it.\n\nI did."
    comment = "bo commented on May 3, 2023\n> I live in Kiel.\n\nI am in Mainz."

    assert said(forum) == [
        ("Bo", "> I live in Kiel."),
        (None, "I am in Mainz."),
        ("Cy", "> Try it."),
        (None, "I did."),
    ]
    assert said(comment) == [(None, "> I live in Kiel."), ("bo", "I am in Mainz.")]


def test_what_somebody_wrote_in_the_middle_of_a_text_is_a_paragraph() -> None:
    text = "I met Ana.\n\nAna wrote:\n\nMy father died.\n\nI have her letter."

    assert said(text) == [
        (None, "I met Ana."),
        ("Ana", "My father died."),
        (None, "I have her letter."),
    ]


def test_a_quote_within_a_quote_ends_where_its_marks_do() -> None:
    text = """\
On Mon, 6 Nov 2023 at 09:12, Bo Li <bo@li.example> wrote:
> I live in Hull.
> On Sun, 5 Nov 2023 at 08:00, Cy Ode <cy@ode.example> wrote:
>> I live in York.
> I have a bike.

I have a car."""

    assert said(text) == [
        ("Bo Li", "> I live in Hull."),
        ("Cy Ode", ">> I live in York."),
        ("Bo Li", "> I have a bike."),
        (None, "I have a car."),
    ]


def test_answers_between_quoted_lines_are_of_the_sender_and_all_quotes_of_the_other() -> None:
    line = "On Sun, 5 Nov 2023 at 19:22, Bo Li <bo@li.example> wrote:"
    answers = f"{line}\n> I have dogs.\n\nI have a cat.\n\n> My rent is 900.\n\nMine is 700."

    found = said(MAIL.replace("> Where do you live?", answers))

    assert [who for who, _ in found] == ["Ana Kim", "Bo Li", "Ana Kim", "Bo Li", "Ana Kim"]
    assert found[3] == ("Bo Li", "> My rent is 900.")


@pytest.mark.parametrize(
    ("sender", "speaker"),
    [
        ('"Kim, Ana" <ana@kim.example>', "Ana Kim"),
        ("Kim, Ana (Sales) <ana@kim.example>", "Ana Kim"),
        ("ana kim <ana@kim.example>", "ana kim"),
        ("<ana@kim.example>", "ana@kim.example"),
        ("ana@kim.example", "ana@kim.example"),
    ],
)
def test_a_sender_may_be_written_in_any_way(sender: str, speaker: str) -> None:
    first = "From: Bo Li\nTo: Cy\nSubject: Flat\n\nI live in Hull.\n\n"

    for below in (f"From: {sender}\nSubject: Flat", f"On 5 Nov 2023 at 19:22, {sender} wrote:"):
        assert said(f"{first}{below}\n\nI live in York.")[-1][0] == speaker


def test_the_head_of_a_mail_of_outlook_in_spanish_is_one() -> None:
    head = "De: Luis Mora\nEnviado el: lunes, 6 de noviembre de 2023 9:12\nAsunto: Piso"

    (turn,) = parse_turns(f"{head}\n\nVivo en Lugo.", NOW)

    assert (turn.speaker, turn.said_at) == ("Luis Mora", datetime(2023, 11, 6, 9, 12, tzinfo=UTC))


def test_a_message_that_is_passed_on_is_of_who_wrote_it() -> None:
    text = "Ana, [06.11.2023 09:16]\n[Forwarded from Cy Ode]\nI live in Bath."
    chat = f"{text}\n\nBo, [06.11.2023 09:17]\nI do not.\n\nAna, [06.11.2023 09:18]\nOk."

    assert [who for who, _ in said(chat)] == ["Cy Ode", "Bo", "Ana"]


@pytest.mark.parametrize(
    "log",
    [
        "# Log\n\n2023-03-01 We went to Graz.\n2023-03-03: Ana left.\nShe flew.\n2023-03-09 Rain.",
        "- 1 March 2023: We went to Graz.\n- 3 March 2023: Ana left.\n- 9 March 2023 – Rain.",
        "**Wed 1 Mar** We went to Graz.\n\n**Fri 3 Mar** Ana left.\n\n**Thu 9 Mar** Rain.",
        "Mi 1.3. Wir waren in Graz.\nFr 3.3. Ana fuhr ab.\nDo 9.3. Regen.",
        "2023年3月1日 グラーツに行った。\n2023年3月3日 アナが帰った。\n2023年3月9日 雨。",
    ],
)
def test_an_entry_of_a_log_was_said_on_the_day_that_it_begins_with(log: str) -> None:
    turns = parse_turns(log, datetime(2023, 5, 8, tzinfo=UTC))

    days = [turn.said_at and turn.said_at.date().isoformat() for turn in turns]
    assert days == ["2023-03-01", "2023-03-03", "2023-03-09"]


@pytest.mark.parametrize(
    "text",
    [
        "3 May: Ana\n9 June: Ben\n12 November: Cy",
        "2023-06-01 We fly to Graz.\n2023-06-03 We ski.\n2023-06-09 We rest.",
        "2023-03-09 Rain.\n2023-03-01 Graz.\n2023-03-03 Ana left.",
        "2023-03-01 Graz.\n2023-03-03 Ana left.",
        # History; jobs; birthdays; a fair that is to come.
        "1 May 2001: Founded in Leeds.\n9 June 2011: Moved to Kiel.\n2 May 2020: Sold to Acme.",
        "```\n2023-03-01 It started.\n2023-03-03 It stopped.\n2023-03-09 It failed.\n```",
        "1 May 1886: They strike.\n3 May 1886: They strike still.\n4 May 1886: A bomb explodes.",
        "1 May 2021 – 9 June 2021: Acme.\n1 July 2021 – 9 May 2022: Bex.\n1 June 2022 – now: Cox.",
        "2022-05-01 to 2022-05-09 Oslo\n2022-06-01 to 2022-06-09 Fair in Kiel\n2022-07-01 Graz",
        "2018-03-01 Ana Kim\n2018-04-02 Ben Roe\n2018-07-03 Cy Ode",
        "Tue 4 June The fair opens.\nWed 5 June A choir sings.\nThu 6 June The fair ends.",
    ],
)
def test_days_that_are_not_those_of_a_log_are_none_on_which_anything_was_said(text: str) -> None:
    turns = parse_turns(text, datetime(2023, 5, 8, tzinfo=UTC))

    assert not any(turn.said_at for turn in turns)


def test_an_entry_whose_day_cannot_be_told_was_not_said_on_the_day_before() -> None:
    log = "2023-03-01 We went to Graz.\n2023-03-03 Ana left.\n9 March: it rained.\nAll day.\n"
    turns = parse_turns(f"{log}2023-03-10 We went home.", datetime(2023, 5, 8, tzinfo=UTC))

    days = [turn.said_at and turn.said_at.day for turn in turns]
    assert days == [1, 3, None, 10]


@pytest.mark.parametrize(
    ("between", "below", "day"),
    [("", "To do\n- paint", None), ("", "# To do\n- paint", None), ("She flew.\n\n", "Rest.", 9)],
)
def test_what_stands_below_a_log_was_not_said_with_its_last_entry(
    between: str, below: str, day: int | None
) -> None:
    """The control: other entries have a second paragraph too."""
    log = f"2023-03-01 We met.\n\n2023-03-03 Ana left.\n\n{between}2023-03-09 Rain.\n\n{below}"
    *_, last = parse_turns(log, datetime(2023, 5, 8, tzinfo=UTC))

    assert (last.said_at and last.said_at.day) == day


@pytest.mark.parametrize(
    "text",
    [
        "Plumber: Jonas, 0171 555\nDentist: Dr. Mey, 0761 55\nVet: Fiona, in Bath",
        "Inn: Sol in Lugo\nPrice: 68 euros\nBeds: 3\n\nInn: Mar in Vigo\nPrice: 55 euros\nBeds: 4",
        "商品:りんご\n価格:200円\n商品:みかん\n価格:150円",
        "Nov 1: We bought the boat.\nNov 3: We sold it.\nNov 9: We regret it.",
        "Mon: Ana opens the shop.\nTue: Ben opens it.\nMon: Cy closes it.",
        "[2026-05-02 10:00:00] INFO: It started.\n[2026-05-02 10:00:01] WARN: It is slow.",
    ],
    ids=["contacts", "records", "prices", "days", "weekdays", "a log"],
)
def test_keys_of_lists_and_records_speak_not(text: str) -> None:
    assert not any(who for who, _ in said(text))


@pytest.mark.parametrize(
    "text",
    [
        "00:01 Ana: hi all of you\n00:05 Ben: hello to you\n00:09 Cy: what is the plan",
        "02.11.26, 18:03 - Job: hi all\n02.11.26, 18:04 - Ana: hi\n02.11.26, 18:05 - Job: bye",
        "Day 1\n\nAna: I ski.\nBen: I swim.\nCy: I run.\n\nAna: I ran.\nBen: I ski.\nCy: I swam.",
    ],
    ids=["call", "contact", "round"],
)
def test_those_who_speak_like_keys_speak_still(text: str) -> None:
    assert all(who in ("Ana", "Ben", "Cy", "Job") for who, words in said(text) if words != "Day 1")


@pytest.mark.parametrize(
    "legend",
    [
        "Speaker 1: Ana Kim (host)    Speaker 2: Mr. Lund",
        "Speaker 1 = Ana Kim\nSpeaker 2 = Mr. Lund",
        "Recorded: 3 May 2026    Duration: 14:52\nSpeaker 1: Ana Kim; Speaker 2: Mr. Lund (guest)",
    ],
)
def test_a_legend_says_whose_labels_those_of_a_transcript_are(legend: str) -> None:
    said_twice = "Speaker 1: Hello.\nSpeaker 2: I sell boats.\n" * 2
    talk = f"Transcript of a call\n{legend}\n\n{said_twice}"

    assert said(talk)[-2:] == [("Ana Kim", "Hello."), ("Mr. Lund", "I sell boats.")]
    assert not any(who for who, _ in said(talk)[:-4]), "nobody says the legend"


def test_initials_behind_a_name_are_the_label_of_who_has_it() -> None:
    legend = "Present: Ana Kim (AK), Dr. Per Lund (PL), Ola Berg (XY), Cy Roe (CR), Cat Ray (CR)"
    talk = f"{legend}\n\n" + "AK: Hello.\nPL: Hi.\nXY: Hey.\nCR: Hi.\n" * 2

    assert [who for who, _ in said(talk)[-4:]] == ["Ana Kim", "Dr. Per Lund", "XY", "CR"]


def test_who_speaks_once_in_a_chat_with_times_speaks() -> None:
    talk = "[10:41] pager: disk full\n" + "[10:42] tess: ack\n[10:43] bo.k: looking\n" * 2

    assert [who for who, _ in said(talk)] == ["pager", *["tess", "bo.k"] * 2]


def test_a_chat_with_days_but_no_year_has_speakers_and_no_date() -> None:
    talk = "12/01 18:02 – Claire : Coucou !\n12/01 18:05 – Tonton Gérard : Bonjour.\n" * 2

    assert [who for who, _ in said(talk)] == ["Claire", "Tonton Gérard"] * 2
    assert not any(turn.said_at for turn in parse_turns(talk, NOW))


def test_the_speakers_of_a_second_call_are_not_those_of_the_first() -> None:
    talk = "Speaker 1: Hello.\nSpeaker 2: I sell boats.\n" * 2
    first = f"Speaker 1: Ana Kim\nSpeaker 2: Per Lund\n\n{talk}"
    second = f"Speaker 1: Cy Roe\nSpeaker 2: Per Lund\n\n{talk}"

    assert [who for who, _ in said(f"{first}\n{second}")[-2:]] == ["Speaker 1", "Per Lund"]


@pytest.mark.parametrize(
    "text",
    [
        "Speaker 1: Ana\nSpeaker 2: Right\nSpeaker 1: Hello there.\nSpeaker 2: Hi.",
        "Speaker 1: Hello.\nSpeaker 2: Right.\n\nSpeaker 1: It is late.\nSpeaker 2: It is.",
        "Speaker 1: Female\nSpeaker 2: Male\n\nSpeaker 1: It is late.\nSpeaker 2: It is.",
        "Speaker 1: Good Day\nSpeaker 2: Good Day\n\nSpeaker 1: It is late.\nSpeaker 2: It is.",
        "A: Mill Lane\nB: Harbour House\n\nA: 12 votes of 15.\nB: Too far away.",
        "Q1: New Shops\nQ2: Old Debts\n\nQ1: twelve more than before.\nQ2: fewer by three.",
        "Acme Lime (AL) lets it to Bex Pine (BP).\n\nAL: pays the rent.\nBP: has keys.\n" * 2,
    ],
)
def test_what_is_said_options_and_shortened_words_are_no_legend(text: str) -> None:
    labels = {line.partition(":")[0] for line in text.splitlines() if ":" in line}

    assert {who for who, _ in said(text)} - {None} <= labels


@pytest.mark.perf
@pytest.mark.parametrize(
    "unit",
    ["A: B\n", "A = B  ", "Speaker 1: A B  ", "AB: A B;", "AB: A B\n",
     "1 May 2023 - 1 May 2023 a\n", "Mon 1 May a\n", "美:はい、そう\n", "Ana Kim (AK) ", "A B C (",
     "2023-03-01 a\n", "- **Mon 1 May** a\n",
     "a: ", "A: ", "a: a\n", "A: a\n", "[", "[[\n", "```\n", "\n", " ", "# ", "- ", "1 ", "A B C: ",
     "(", "**", "[1:1] ", "1 May 2023 ", "session ", ". ", "8 May 2023\n", "> ", "> a\n", ">",
     "● ", "> a\n● b\n", "> a\n\n● B(\n  ⎿ c\n", "From: ", "From: A\nSubject: b\n", "From: a@b\n",
     "On 11 A wrote:\n", "On 11 A wrote:\n> a\n", "On 1 wrote:", "On 11 A, ", "Am 11 schrieb ",
     "Am 11 schrieb A:\n", "A <a@b>\n1:00\nto me\n", "A wrote:\n", "A wrote:\n> a\nb\n", "<a> ",
     "<a> b\n", "A – b\n", "[0:01] a", "[0:01] A\n", "**a** (", "**A** (0:01)\n", "A (b)  0:01\n",
     "A :b: ", "A 0:01\n", "A 0:01\nb\n", "a commented on 1\n", "1/2/26, 1:00 - A b\n",
     "1/2/26, 1:00 - a: b\n", "[1.2.26, 0:01] ~ ", "[Forwarded from A]\n", "美: 元\n",
     "Dear A,\n\n", "# a 1 May 2024\n", "1. A\n", "A: b c d\n\n1. A\nb\n", "> > a\n> a\n"],
)  # fmt: skip
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = (unit * 131_072)[:131_072]
    began = time.thread_time()

    parse_turns(text, NOW)

    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("[02.10.26, 18:03:11] Ana: hi there", datetime(2026, 10, 2, 18, 3, 11, tzinfo=UTC)),
        ("02.10.26, 18:03 - Ana: hi there", datetime(2026, 10, 2, 18, 3, tzinfo=UTC)),
        ("2. März 2026\nWir ziehen um.", datetime(2026, 3, 2, tzinfo=UTC)),
        ("Montag, 5. Oktober 2026\nWir ziehen um.", datetime(2026, 10, 5, tzinfo=UTC)),
        ("3 de enero de 2026\nNos mudamos.", datetime(2026, 1, 3, tzinfo=UTC)),
        ("1er août 2026\nOn a déménagé.", datetime(2026, 8, 1, tzinfo=UTC)),
        ("2026年3月2日\n引っ越しました。", datetime(2026, 3, 2, tzinfo=UTC)),
    ],
)
def test_a_day_is_read_as_chats_and_diaries_of_several_languages_write_it(
    text: str, day: datetime
) -> None:
    assert only(text).said_at == day


def test_a_heading_with_a_day_that_names_a_version_is_content() -> None:
    text = "### 1.2.0 (2 October 2026)\n- The port is 8480.\n"

    turn = only(text)

    assert turn.said_at == datetime(2026, 10, 2, tzinfo=UTC)
    assert text[turn.span.start : turn.span.end] == text.strip()


def test_a_date_among_other_keys_is_content() -> None:
    text = "Date: 12 September 2026\nVenue: Hollowell Barn"

    turn = only(text)

    assert turn.said_at == datetime(2026, 9, 12, tzinfo=UTC)
    assert text[turn.span.start : turn.span.end] == text


WEBVTT = """WEBVTT - Weekly

00:02.000 --> 00:06.500 align:start
<v Ana Kim>I moved.</v>

00:00:06.800 --> 00:00:11.200
<v Ben>When?</v>
"""
SUBRIP = """1
00:00:02,000 --> 00:00:06,500
Ana Kim: I moved.

2
00:00:06,800 --> 00:00:11,200
Ben: When?
"""


@pytest.mark.parametrize(
    "captions",
    [
        WEBVTT,
        SUBRIP,
    ],
)
def test_captions_are_what_was_said_without_their_times(captions: str) -> None:
    assert said(captions) == [("Ana Kim", "I moved."), ("Ben", "When?")]
    assert all(one.session is None for one in parse_turns(captions, NOW))


def test_captions_without_speakers_are_a_turn_each() -> None:
    captions = (
        "1\n00:00:02,000 --> 00:00:06,500\nI moved\n\n2\n00:00:07,000 --> 00:00:09,000\nto Rome."
    )
    assert said(captions) == [(None, "I moved"), (None, "to Rome.")]


def test_a_tag_of_a_page_is_no_speaker() -> None:
    assert said("<b>Ana</b> moved.\n<b>Ben</b> stayed.")[0][0] is None

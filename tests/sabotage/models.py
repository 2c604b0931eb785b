"""Language models: keys that are rejected, redirects, and answers that are cut off."""

from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import Argument, Never, Without
from tests.sabotage.queries import Text

BREAKAGES = (
    Breakage(
        "key-sent-for-ever",
        "that a rejected key is sent less and less often",
        "recall_server.integrations.llm:ModelApi.ask",
        Without("_pause"),
        (
            "tests/integration/models/test_openai.py::test_a_rejected_key_is_sent_less_and_less_often_and_in_the_end_no_more",
        ),
    ),
    Breakage(
        "half-an-answer",
        "that an answer that stopped early is not used",
        "recall_server.integrations.llm.openai_api:_completion",
        Never("stop"),
        (
            "tests/integration/models/test_openai.py::test_an_answer_of_no_use_is_said_to_be_so_and_is_not_asked_for_again[a whole one at the limit]",
        ),
    ),
    Breakage(
        "text-and-key-sent-on",
        "that no redirect of a model's server is followed",
        "recall_server.integrations.llm.openai_api:OpenAIApi.__init__",
        Argument("DefaultAsyncHttpxClient", "follow_redirects", "True"),
        ("tests/integration/models/test_openai.py::test_a_redirect_is_not_followed",),
    ),
    Breakage(
        "given-up-for-good",
        "that jobs without a key are queued again when there is another",
        "query:requeue_jobs_without_key",
        Text("UPDATE operations SET due_at = :now WHERE kind = :kind AND state = 'queued'"),
        (
            "tests/integration/models/test_model_keys.py::test_a_rejected_key_is_told_and_not_sent_for_ever_and_another_makes_up_for_it[sqlite-openai]",
        ),
    ),
)

"""The benchmark of the request path counts functions of the product, in every thread."""

from threading import Thread

from benchmarks.request_path import Recorder, functions
from recall_server.domain.text.cleaning import clean_text, validator_message


def test_functions_of_the_product_count_in_every_thread_while_it_is_on() -> None:
    recorder = Recorder()
    with recorder.installed():
        validator_message("x")
        with recorder.on() as seen:
            thread = Thread(target=clean_text, args=("within",), kwargs={"chars_max": 10})
            thread.start()
            thread.join()
        validator_message("x")

    names = {name for found in functions(seen).values() for name in found}
    assert "clean_text" in names
    assert "validator_message" not in names

"""Logs are held back for a block, and as they were after it."""

import logging

import pytest

from pipeline.runtime.quiet import without_log


def test_messages_are_held_back_for_a_block_alone(caplog):
    log = logging.getLogger("test")
    with without_log(logging.WARNING):
        log.warning("held back")
        log.error("said")
    log.warning("said too")
    assert [record.message for record in caplog.records] == ["said", "said too"]


@pytest.mark.parametrize("before", [logging.NOTSET, logging.CRITICAL])
def test_what_was_held_back_before_stays_so(before):
    logging.disable(before)
    try:
        with pytest.raises(RuntimeError), without_log(logging.WARNING):
            raise RuntimeError
        assert logging.root.manager.disable == before
    finally:
        logging.disable(logging.NOTSET)

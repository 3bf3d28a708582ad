"""Tables for notebooks: everything is there, and nothing of it is markup."""

from xml.etree import ElementTree

from pipeline.runtime.html import html_list, html_table

HOSTILE = "<script>alert('&\"')</script>"


def test_a_table_holds_its_texts_as_they_are():
    table = ElementTree.fromstring(html_table(HOSTILE, [(HOSTILE, 1, HOSTILE)], ["", "one", HOSTILE]))
    assert table.find("caption").text == HOSTILE
    assert [cell.text for cell in table.iter("th")] == [None, "one", HOSTILE, HOSTILE]
    assert [cell.text for cell in table.iter("td")] == ["1", HOSTILE]
    assert table.find(".//script") is None


def test_a_list_holds_its_sentences_and_is_nothing_without_any():
    assert [item.text for item in ElementTree.fromstring(html_list([HOSTILE, "two"]))] == [HOSTILE, "two"]
    assert html_list([]) == ""

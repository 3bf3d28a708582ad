"""A report's page, as a reader finds it."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """A page's text, ids, links and tables: of each its caption's rows, as texts and as the numbers behind them."""

    def __init__(self, html: str):
        super().__init__()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.values: list[float] = []
        self.words: list[str] = []
        self._rows: list[list[str]] = []
        self._in: list[str] = []
        self._caption = ""
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.attributes += [(tag, name, value) for name, value in known.items()]
        self.ids += [known["id"]] if "id" in known else []
        if tag not in ("meta", "link", "img"):
            self._in.append(tag)
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        elif tag == "data":
            self.values.append(float(known["value"]))

    def handle_endtag(self, tag: str) -> None:
        assert self._in.pop() == tag, f"</{tag}> does not close what was opened"
        if tag == "table":
            assert self._caption not in self.tables, f"two tables are called {self._caption}"
            self.tables[self._caption] = self._rows

    def handle_data(self, data: str) -> None:
        if "style" in self._in or "script" in self._in:
            return
        self.words.append(data)
        if "caption" in self._in:
            self._caption += data
        elif {"td", "th"} & set(self._in):
            self._rows[-1][-1] = " ".join([*self._rows[-1][-1].split(" "), *data.split("\n")]).strip()

    def table(self, words: str) -> list[list[str]]:
        """The rows of the table whose caption has these words, its head first."""
        (found,) = [rows for caption, rows in self.tables.items() if words in caption]
        return found

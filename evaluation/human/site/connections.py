"""Connections that ask for nothing are closed, so that whoever opens many of them keeps no rater out."""

import asyncio

from fastapi import FastAPI
from uvicorn import Config
from uvicorn.protocols.http.auto import AutoHTTPProtocol

PATIENCE = 15.0  # seconds in which a request has to be there whole; looked after at this interval
MOST = 500  # connections of one address, half of what the site takes: a hundred raters can be behind one


def configuration(app: FastAPI, proxy: str | None = None, port: int = 8000) -> Config:
    """How the site is served; headers that name another visitor are believed of the proxy alone."""
    return Config(
        app,
        port=port,
        http=WatchedConnection,
        access_log=False,  # personal links would be in it
        log_level="warning",
        server_header=False,
        limit_concurrency=1000,
        timeout_keep_alive=30,
        proxy_headers=proxy is not None,
        forwarded_allow_ips=proxy or "",
    )


class WatchedConnection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """One of uvicorn's connections, with a time for requests to come and a limit by address.

    uvicorn itself waits for ever for a first request, for the end of its headers and for the end of its body.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._waited_for: object = self._asked()  # when we last looked, if it was the visitor's turn
        self._watch = self.loop.call_later(PATIENCE, self._look)
        address = self.client[0] if self.client else ""
        if address and address != self.config.forwarded_allow_ips:  # of a proxy, all visitors have its address
            own = [one for one in self.connections if one.client and one.client[0] == address]
            if len(own) > MOST:
                silent = [one for one in own if one.cycle is None]
                among = silent or [one for one in own if one.waits()] or own
                min(among, key=lambda one: one._watch.when()).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def waits(self) -> bool:
        """Whether it is the visitor's turn: no request yet, or the last is answered, or its body is not whole."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _look(self) -> None:
        asked = self._asked() if self.waits() else None
        if asked is not None and asked == self._waited_for:
            self.transport.abort()
            return
        self._waited_for = asked
        self._watch = self.loop.call_later(PATIENCE, self._look)

    def _asked(self) -> tuple[int, bool]:
        """The last request, and whether it is answered: what stays the same as long as a visitor says nothing."""
        return id(self.cycle), self.cycle is not None and self.cycle.response_complete

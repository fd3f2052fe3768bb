"""Keys: who may talk to this studio. Four random secrets a start, compared in constant time.

token   in the address printed at start; exchanged for cookie and tab, and then out of the address
ticket  in the address handed to the browser on start, good for one exchange: a command line
        can be read by other people on the machine, and a used ticket is worth nothing
cookie  what the browser holds afterwards: HttpOnly, SameSite=Strict, gone with the browser. It
        goes to every port of this host, so it opens the page and nothing that a person has
tab     what the page holds, in its tab and for its origin alone, and sends with every request
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass
class Keys:
    """The secrets of one start.

    >>> keys = Keys()
    >>> ticket = keys.ticket
    >>> keys.opens(ticket), keys.opens(ticket), keys.opens(keys.token)
    (True, False, True)
    """

    token: str = field(default_factory=_secret, repr=False)
    ticket: str = field(default_factory=_secret, repr=False)
    cookie: str = field(default_factory=_secret, repr=False)
    tab: str = field(default_factory=_secret, repr=False)

    def opens(self, given: str) -> bool:
        """Whether `given` may be exchanged for cookie and tab; a ticket is used up by it."""
        if same(given, self.token):
            return True
        if same(given, self.ticket):
            self.ticket = _secret()
            return True
        return False

    def bears(self, given: str) -> bool:
        """Whether an `Authorization: Bearer` header of a script holds the token."""
        return same(given, self.token)

    def holds(self, given: str) -> bool:
        """Whether `given` is the cookie."""
        return same(given, self.cookie)

    def sits(self, given: str) -> bool:
        """Whether `given` is the secret of the page's tab."""
        return same(given, self.tab)


def same(given: str, secret: str) -> bool:
    """Equality whose time does not depend on where the two differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())

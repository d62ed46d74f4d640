# SPDX-License-Identifier: Apache-2.0
"""The sender of a message: the identity that FLARE authenticated, never the sender's own claim."""

from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import ReservedKey, ServerCommandKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.errors import ContributionError


def authenticated_site(shareable: Shareable, fl_ctx: FLContext) -> str:
    """Return the name of the site that sent ``shareable``; raise ``ContributionError`` if there is none.

    FLARE's server sets a header with the client that owns the message's token. Without that header, the peer context
    is used, which travels with the message and gives the same name for an honest site.
    """
    name = _name_in_headers(shareable) or _name_of_peer(fl_ctx)
    if not isinstance(name, str) or not name:
        raise ContributionError("A contribution came without the name of an authenticated site.")
    return name


def asking_site(fl_ctx: FLContext) -> str:
    """Return the name of the site that fetches a task, as the server's filters see it; empty if FLARE does not say."""
    name = _name_of_peer(fl_ctx)
    return name if isinstance(name, str) else ""


def _name_in_headers(shareable: Shareable) -> Any:
    headers = shareable if isinstance(shareable, Shareable) else Shareable()
    client = headers.get_header(ServerCommandKey.FL_CLIENT)
    return client.name if isinstance(client, Client) else headers.get_peer_prop(ReservedKey.IDENTITY_NAME, None)


def _name_of_peer(fl_ctx: FLContext) -> Any:
    peer = fl_ctx.get_peer_context() if fl_ctx else None
    return peer.get_identity_name() if peer else None

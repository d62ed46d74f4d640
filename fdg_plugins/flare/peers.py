# SPDX-License-Identifier: Apache-2.0
"""The sender of a message: the identity that FLARE authenticated, never the sender's own claim."""

from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import ReservedKey, ServerCommandKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.errors import ContributionError
from fdg_plugins.flare.internals import IDENTITY, InternalsError, fetch

ASKING_SITE_PROP = "fdg_asking_site"


def authenticated_site(shareable: Shareable, fl_ctx: FLContext) -> str:
    """Return the name of the site that sent ``shareable``; raise ``ContributionError`` if there is none.

    FLARE's server sets a header with the client that owns the message's token. Without that header, the peer context
    is used, which travels with the message and gives the same name for an honest site.
    """
    name = _name_in_headers(shareable) or _name_of_peer(fl_ctx)
    if not isinstance(name, str) or not name:
        raise ContributionError("A contribution came without the name of an authenticated site.")
    return name


def mark_asking_sites(runner: Any) -> str | None:
    """Make every request for a task to ``runner``, FLARE's server runner, tell the filters which site asks.

    The name is that of the client that owns the request's token. FLARE gives filters nothing but the peer context, in
    which a site can call itself anything. Returns None, or a sentence if this FLARE version lacks the internal, and the
    site stays unknown.
    """
    try:
        fetch(IDENTITY, "ServerRunner.process_task_request")
    except InternalsError as error:
        return str(error)
    known = runner.process_task_request

    def process(client: Client, fl_ctx: FLContext) -> tuple[str, str, Shareable]:
        fl_ctx.set_prop(ASKING_SITE_PROP, client.name, private=True, sticky=False)
        found: tuple[str, str, Shareable] = known(client, fl_ctx)
        return found

    runner.process_task_request = process
    return None


def asking_site(fl_ctx: FLContext) -> str:
    """Return the authenticated name of the site that a filter is about to send a task to; empty if unknown."""
    name = fl_ctx.get_prop(ASKING_SITE_PROP)
    return name if isinstance(name, str) else ""


def _name_in_headers(shareable: Shareable) -> Any:
    headers = shareable if isinstance(shareable, Shareable) else Shareable()
    client = headers.get_header(ServerCommandKey.FL_CLIENT)
    return client.name if isinstance(client, Client) else headers.get_peer_prop(ReservedKey.IDENTITY_NAME, None)


def _name_of_peer(fl_ctx: FLContext) -> Any:
    peer = fl_ctx.get_peer_context() if fl_ctx else None
    return peer.get_identity_name() if peer else None

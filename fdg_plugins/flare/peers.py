# SPDX-License-Identifier: Apache-2.0
"""The sender of a message: the identity that FLARE authenticated, never the sender's own claim."""

from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import ReservedKey, ReturnCode, ServerCommandKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable

from fdg_plugins.errors import ContributionError
from fdg_plugins.flare.internals import IDENTITY, InternalsError, fetch

ASKING_SITE_PROP = "fdg_asking_site"
LONGEST_CODE = 50  # characters; the longest of FLARE's return codes has 24


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


def correct_claims(runner: Any) -> str | None:
    """Make every answer to ``runner``, FLARE's server runner, bear its site's name and a return code that is a word.

    FLARE takes both as the message has them and writes them before the lines of its log, those of the workflow among
    them. The name becomes that of the client that owns the message's token; a return code that FLARE cannot have sent,
    the one of an error. Returns None, or a sentence if this FLARE version lacks the internal, and both stay claims.
    """
    try:
        fetch(IDENTITY, "ServerRunner.process_submission")
    except InternalsError as error:
        return str(error)
    known = runner.process_submission

    def process(client: Client, task_name: str, task_id: str, result: Shareable, fl_ctx: FLContext) -> Any:
        peer = fl_ctx.get_peer_context()
        if isinstance(peer, FLContext):
            peer.put(ReservedKey.IDENTITY_NAME, client.name, private=False, sticky=False)
        if isinstance(result, Shareable) and not _is_word(result.get_return_code(ReturnCode.OK)):
            result.set_return_code(ReturnCode.EXECUTION_RESULT_ERROR)
        return known(client, task_name, task_id, result, fl_ctx)

    runner.process_submission = process
    return None


def _is_word(code: Any) -> bool:
    """Return whether a return code is a name, as all of FLARE's are."""
    return isinstance(code, str) and len(code) <= LONGEST_CODE and code.isascii() and code.isidentifier()


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

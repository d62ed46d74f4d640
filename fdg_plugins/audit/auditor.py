# SPDX-License-Identifier: Apache-2.0
"""The auditor: every answer of a site is recorded twice in the audit file, or it does not leave.

The executor records an answer before returning it. After all filters, FLARE fires ``AFTER_TASK_RESULT_FILTER`` with the
object that it will send, and the answer is recorded again. Both lines carry the same id. FLARE only logs an exception
in an event handler, so an answer that cannot be recorded is emptied in place and becomes an error reply.
"""

import hashlib
import logging
import secrets
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from nvflare.apis.event_type import EventType
from nvflare.apis.filter import FilterContextKey
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.app_constant import AppConstants
from nvflare.fuel.utils.config_factory import ConfigFactory

from fdg_plugins.audit.contents import contents_of
from fdg_plugins.audit.file import AUDIT_FILE, AuditLine, FilterEntry, append_line
from fdg_plugins.errors import FDGError
from fdg_plugins.flare.context import class_path, in_one_process, result_filters
from fdg_plugins.messages import HEADER_REASON
from fdg_plugins.plugins.versions import OF_AUDIT, installed_versions
from fdg_plugins.privacy.reasons import RefusedError, failing_closed, reason_of
from fdg_plugins.storage import sha256_of

_PAIR = "fdg_audit_pair"  # private property of one task's context: the task's id and the line's id
_LAST = "fdg_audit_last"  # another: the last line, without its time


def note_returned(task_name: str, answer: Shareable, fl_ctx: FLContext) -> Shareable:
    """Record the answer that the executor is about to return; return it, or an error reply if recording fails."""
    fl_ctx.set_prop(_PAIR, None, private=True, sticky=False)
    return _record(answer, fl_ctx, "returned", task=task_name, filters=()) or answer


def audit_event(event_type: str, fl_ctx: FLContext) -> None:
    """Record an answer that is about to leave the site; call this with every event that a site's component receives.

    An answer that cannot be recorded is replaced in place by an error reply, which contains none of the answer.
    """
    answer = fl_ctx.get_prop(FLContextKey.TASK_RESULT)
    if event_type != EventType.AFTER_TASK_RESULT_FILTER or not isinstance(answer, Shareable):
        return
    if (reply := _record(answer, fl_ctx, "sent")) is not None:
        answer.clear()
        answer.update(reply)


def _record(
    answer: Shareable, fl_ctx: FLContext, stage: Literal["returned", "sent"], **changes: Any
) -> Shareable | None:
    """Append the line of an answer, with ``changes``, to the audit file; return an error reply if that fails."""
    try:
        with failing_closed("the audit"):
            line = audit_line(answer, fl_ctx, stage, _line_id(fl_ctx)).model_copy(update=changes)
            last = line.model_copy(update={"time": ""})
            if fl_ctx.get_prop(_LAST) != last:  # else another executor of this job has heard of the same answer
                root = Path(fl_ctx.get_engine().get_workspace().get_audit_root())  # where FLARE's own is
                append_line(root / AUDIT_FILE, line, durable=not in_one_process(fl_ctx))
                fl_ctx.set_prop(_LAST, last, private=True, sticky=False)
    except FDGError as error:  # an answer that was not recorded must not leave; FLARE would only log this
        reason, is_unforeseen = reason_of(error, fl_ctx), isinstance(error, RefusedError)
        logging.getLogger(__name__).error("An answer was withheld: %s", reason.logged, exc_info=is_unforeseen)
        told = f"site {fl_ctx.get_identity_name()}: its answer was withheld: {reason.told}"
        return make_reply(ReturnCode.EXECUTION_EXCEPTION, {HEADER_REASON: told})
    return None


def _line_id(fl_ctx: FLContext) -> str:
    current = fl_ctx.get_prop(FLContextKey.TASK_ID)
    match fl_ctx.get_prop(_PAIR):
        case (task, str(number)) if task == current and task is not None:
            return number
    number = secrets.token_hex(8)
    fl_ctx.set_prop(_PAIR, (current, number), private=True, sticky=False)
    return number


def audit_line(answer: Shareable, fl_ctx: FLContext, stage: Literal["returned", "sent"], own_id: str) -> AuditLine:
    """Return the audit line for an answer in its state at ``stage``, with the id ``own_id``."""
    contents = contents_of(answer, fl_ctx.get_all_public_props())
    job = str(fl_ctx.get_job_id())
    digest_of = _known_sha256 if in_one_process(fl_ctx) else _config_sha256
    number, chain = answer.get_header(AppConstants.CURRENT_ROUND), result_filters(fl_ctx)
    passed = [
        FilterEntry(filter=class_path(one), source=str(one.get_prop(FilterContextKey.SOURCE, "?")))
        for one in chain or ()
    ]
    return AuditLine(
        stage=stage,
        id=own_id,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        site=str(fl_ctx.get_identity_name()),
        job=job,
        task=str(fl_ctx.get_prop(FLContextKey.TASK_NAME)),
        round=number if isinstance(number, int) and not isinstance(number, bool) else None,
        return_code=str(answer.get_return_code(ReturnCode.OK)),
        kind=contents.kind,
        bytes=sum(entry.bytes for entry in contents.tensors),
        tensors=tuple(contents.tensors),
        values=contents.values,
        others=contents.others,
        filters=None if chain is None else tuple(passed),
        config_sha256=digest_of(fl_ctx.get_engine().get_workspace(), job),
        versions=installed_versions(OF_AUDIT),
    )


def _config_sha256(workspace: Any, job: str) -> str | None:
    """Return the SHA-256 of the job's site config, of the very file that FLARE loads; None if there is none.

    HOCON may include other files, so unless the config is JSON, it is that of a list of all files of the app with the
    SHA-256 of each, without what Python compiled.
    """
    _, found = ConfigFactory.search_config_format(workspace.get_client_app_config_file_path(job))
    if found is None:
        return None
    if found.endswith(".json"):
        return sha256_of(Path(found))
    app = Path(workspace.get_app_dir(job))
    files = sorted(path for path in app.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    lines = "".join(f"{sha256_of(path)} {path.relative_to(app)}\n" for path in files)
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


_known_sha256 = cache(_config_sha256)  # in one process, where the engine has made the files

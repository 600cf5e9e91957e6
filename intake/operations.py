"""REST as operations: a decorator says the method, path, input and output of one, and the OpenAPI document follows.

Operations of one path are one DRF view, with its parsers, throttles, permissions and problem documents.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, get_type_hints
from uuid import UUID

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core.ids import parse_id
from core.isolation.views import ActsAsCaller
from core.responses import problems
from core.validation import Output, validate, validate_query
from intake.accounts.identity import caller_of, person_of
from intake.chats.reading import as_turn_number

Operation = Callable[..., Any]
# What the address names, by its type. No turn has the number 0.
PARSERS: dict[Any, Callable[[str], Any]] = {UUID: parse_id, int: lambda text: as_turn_number(text) or 0}


class Operations:
    """The operations of a part of the API, each a method of a view with this base.

    `is_bound`: whether a token that is bound to a project may call them, unless one says otherwise.
    """

    def __init__(self, base: type[APIView] = ActsAsCaller, *, is_bound: bool = True) -> None:
        self._base, self._is_bound = base, is_bound
        self._views: dict[str, type[APIView]] = {}

    @property
    def urlpatterns(self) -> list[URLPattern]:
        return [path(route, view.as_view(), name=view.__name__) for route, view in self._views.items()]

    def __call__(
        self,
        method: str,
        route: str,
        output: Any = None,
        *,
        status: int = HTTPStatus.OK,
        fails: Sequence[int] = (),
        also: Mapping[Any, Any] = MappingProxyType({}),
        is_bound: bool | None = None,
        has_more: bool = False,
        request: Any = None,
        parameters: Sequence[OpenApiParameter] = (),
        **attributes: Any,
    ) -> Callable[[Operation], Operation]:
        """For a function of `user`, `request`, what the route names, a `body` and a `query`, each if it asks for it.

        It returns a model, data or a response, which may have one of the statuses in `also`: there, what is no JSON is
        described by its type. `fails`: the statuses beside those of its input, and of what the address names: a day
        has room for what is not there yet. `has_more`: whether the response has more than was sent, so that a token
        also needs the scope `read`. `request`: the schema of a body that is no JSON. `attributes`: of its view, such
        as the `required_scope` in place of that of its method.
        """
        bound = self._is_bound if is_bound is None else is_bound

        def decorate(function: Operation) -> Operation:
            hints = get_type_hints(function)
            body, query, named = hints.get("body"), hints.get("query"), re.findall(r"<str:(\w+)>", route)

            offered: dict[str, Callable[[Request], Any]] = {
                "request": lambda request: request,
                "user": person_of,
                "caller": caller_of,
                "query": lambda request: validate_query(hints["query"], request),
                "body": lambda request: validate(hints["body"], request.data),
            }

            def handle(view: APIView, request: Request, **texts: str) -> HttpResponseBase:
                arguments = {name: make(request) for name, make in offered.items() if name in hints}
                # Last: what was sent with a malformed id gets the same answer as with one that does not exist.
                arguments |= {name: PARSERS.get(hints[name], str)(text) for name, text in texts.items()}
                answer = function(**arguments)
                if isinstance(answer, Output):
                    answer = answer.as_data()
                elif isinstance(answer, BaseModel):
                    answer = answer.model_dump(mode="json", by_alias=True)
                return answer if isinstance(answer, HttpResponseBase) else Response(answer, status=status)

            title, _, description = (function.__doc__ or "").partition("\n\n")
            usual = {} if output is None and status == HTTPStatus.OK else {status: output}
            statuses = {
                401,
                503,
                *fails,
                *({404} if {*named} - {"date"} else ()),
                *({400} if body or query else ()),
            }
            described = extend_schema(
                operation_id=function.__name__,
                # A sentence describes, and a title does not end with a full stop.
                summary=None if title.endswith(".") else title,
                description=" ".join((title if title.endswith(".") else description).split()),
                parameters=[
                    *(OpenApiParameter(name, hints[name], OpenApiParameter.PATH) for name in named),
                    *(_parameters_of(query) if query else ()),
                    *parameters,
                ],
                request=body or request,
                responses={**usual, **also, **problems(*statuses, *((413, 415) if body else ()))},
            )
            own = {"__module__": function.__module__, "takes_bound": (), "answers_with": ()}
            view: Any = self._views.setdefault(route, type(function.__name__, (self._base,), own))
            view.takes_bound += (method.upper(),) if bound else ()
            view.answers_with += (method.upper(),) if has_more else ()
            for name, value in {**attributes, method: described(handle)}.items():
                setattr(view, name, value)
            return function

        return decorate


def _parameters_of(query: type[BaseModel]) -> list[OpenApiParameter]:
    found = []
    for name, schema in query.model_json_schema()["properties"].items():
        kinds = [kind for kind in schema.pop("anyOf", [{}]) if kind != {"type": "null"}]
        about = {key: value for key, value in schema.items() if key != "title" and value not in (None, "")}
        description = about.pop("description", "")
        found.append(OpenApiParameter(name, {**kinds[0], **about}, description=description))
    return found

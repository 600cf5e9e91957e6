"""A local proxy that adds a token to every request, for a suite that cannot send one. Everything else goes through."""

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

HOP_BY_HOP = {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
METHODS = ["GET", "POST", "DELETE", "PUT", "OPTIONS"]


def proxy_to(address: str, *, secret: str) -> Starlette:
    async def forward(request: Request) -> Response:
        headers = [(name, value.strip()) for name, value in request.headers.items() if name not in HOP_BY_HOP]
        async with httpx2.AsyncClient(timeout=30) as http:
            answer = await http.request(
                request.method,
                f"{address}/mcp",
                content=await request.body(),
                headers=[*headers, ("authorization", f"Bearer {secret}")],
            )
        kept = {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}
        return Response(answer.content, answer.status_code, kept)

    return Starlette(routes=[Route("/mcp", forward, methods=METHODS)])

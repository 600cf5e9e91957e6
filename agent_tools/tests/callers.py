"""Ways to call, for tests: a client with a token, and a call of a tool over REST."""

import json

from django.test import Client

from agent_tools.authentication import create_token
from agent_tools.models import ALL_SCOPES


def client_of(user, *, scopes=ALL_SCOPES, **token):
    secret = create_token(user=user, scopes=scopes, **token).secret
    return Client(headers={"authorization": f"Bearer {secret}"})


def call(client, tool, body, **headers):
    """`body`: what becomes JSON, or the very bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body)
    return client.post(f"/api/v1/tools/{tool}/", data, content_type="application/json", headers=headers)

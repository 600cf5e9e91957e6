"""The REST edge and its OpenAPI document."""

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "agent_tools.rest.authentication.AccessTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "agent_tools.rest.authentication.HasScope",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["agent_tools.rest.authentication.Throttle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "core.negotiation.Negotiation",
    "DEFAULT_PARSER_CLASSES": ["core.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "core.problems.exception_handler",
    # DRF would take `?format=` for a renderer; the list of tools has formats of its own.
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Recollect",
    "DESCRIPTION": "Your conversations and notes, searched by meaning and by words.",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    # Two things are called scope.
    "ENUM_NAME_OVERRIDES": {
        "HistoryScopeEnum": ["all", "memory", "daily_log", "sessions"],
        "TokenScopeEnum": ["search", "write"],
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "intake.schemas.add_chat",
        "intake.schemas.add_confirmation",
    ],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
}

"""Hides the OAuth toolkit's tables from the admin: staff do not manage users' agents."""

from django.contrib import admin
from oauth2_provider.models import AccessToken, Application, Grant, IDToken, RefreshToken

admin.site.unregister([AccessToken, Application, Grant, IDToken, RefreshToken])

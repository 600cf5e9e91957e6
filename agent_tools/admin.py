"""Keeps the toolkit's tables out of the admin: whom a person lets into their memory is nobody else's business."""

from django.contrib import admin
from oauth2_provider.models import AccessToken, Application, Grant, IDToken, RefreshToken

admin.site.unregister([AccessToken, Application, Grant, IDToken, RefreshToken])

"""The pages people open in a browser."""

from django.urls import path

from intake.views import accounts, pages

app_name = "intake"

urlpatterns = [
    path("", pages.home, name="home"),
    # Any text, so that a malformed id gets the same answer as one that is not there.
    path("c/<str:conversation_id>/", pages.conversation, name="conversation"),
    path("conversations/", pages.conversations, name="conversations"),
    path("register/", accounts.RegisterView.as_view(), name="register"),
    path("login/", accounts.LoginView.as_view(), name="login"),
    path("logout/", accounts.LogoutView.as_view(), name="logout"),
]

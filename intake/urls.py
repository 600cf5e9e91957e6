"""The addresses of the chat's and the account's pages."""

from django.urls import path

from intake.views import accounts, changing, installed, keeping, outline, pages, security, settings, temporary

app_name = "intake"

urlpatterns = [
    path("", pages.home, name="home"),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("c/<str:conversation_id>/", pages.conversation, name="conversation"),
    path("c/<str:conversation_id>/rename/", changing.rename_conversation, name="rename_conversation"),
    path("c/<str:conversation_id>/delete/", changing.delete_conversation, name="delete_conversation"),
    path("c/<str:conversation_id>/turns/<str:turn_number>/delete/", changing.delete_turn, name="delete_turn"),
    path("c/<str:conversation_id>/outline/", outline.conversation_outline, name="conversation_outline"),
    path("c/<str:conversation_id>/pin/", keeping.pin_conversation, name="pin_conversation"),
    path("c/<str:conversation_id>/archive/", keeping.archive_conversation, name="archive_conversation"),
    path("c/<str:conversation_id>/keep/", temporary.keep_conversation, name="keep_conversation"),
    path("c/<str:conversation_id>/leave/", temporary.leave_conversation, name="leave_conversation"),
    path("conversations/", pages.conversations, name="conversations"),
    path("conversations/change/", keeping.change_conversations, name="change_conversations"),
    path("settings/account/", settings.account, name="account"),
    path("settings/account/titles/", settings.titles, name="titles"),
    path("settings/account/language/", settings.language, name="language"),
    path("settings/account/answers/", settings.answers, name="answers"),
    path("settings/account/delete/", settings.delete_account, name="delete_account"),
    path("settings/account/export/", security.export, name="export_account"),
    path("settings/account/password/", security.password, name="password"),
    path("settings/account/activity/", security.list_activity, name="activity"),
    path("settings/account/sessions/", security.list_sessions, name="sessions"),
    path("settings/account/sessions/end-others/", security.end_other_sessions, name="end_other_sessions"),
    path("settings/account/sessions/<str:name>/end/", security.end_session, name="end_session"),
    path("language/<str:language>.js", installed.catalog, name="catalog"),
    path("account/deleted/<str:signed>/", settings.account_deleted, name="account_deleted"),
    path("worker.js", installed.worker, name="worker"),
    path("offline/", installed.offline, name="offline"),
    path("favicon.ico", installed.favicon, name="favicon"),
    path("register/", accounts.RegisterView.as_view(), name="register"),
    path("login/", accounts.LoginView.as_view(), name="login"),
    path("logout/", accounts.LogoutView.as_view(), name="logout"),
]
